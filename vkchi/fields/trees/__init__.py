"""Field trees: nested blocks of cells, their memory layout, sparse and bit-packed cells."""
