"""Reading everything again: is each sample stored exactly once?"""
