"""What the extractor costs, against its peers and against its own parts: `npm run bench:extraction [-- NAME...]`.

Every figure is a ratio within one process and one run: the sides take turns (A B A B ...), so that whatever else the
machine does falls on both.
"""
