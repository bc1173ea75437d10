"""The cost of the extractor, compared with other software and with its own parts: `npm run bench:extraction [--
NAME...]`.

Figures that compare are ratios within one run: the sides take turns (A B A B ...), so that other load of the machine
affects both. `tls` gives bytes a second of each core.
"""
