"""Reference interpreter of IR in numpy, and evaluation of single ops."""
