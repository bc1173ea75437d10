"""A model: its files, its families, the decoder, and its parameters on the device."""
