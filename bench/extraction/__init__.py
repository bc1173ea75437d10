"""The cost of the extractor, compared with other software and with its own parts: `npm run bench:extraction [--
NAME...]`.

Every figure is a ratio within one process and one run: the sides take turns (A B A B ...), so that other load of the
machine affects both.
"""
