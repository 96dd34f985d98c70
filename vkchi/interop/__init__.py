"""Exchange of arrays with other libraries: numpy, torch, DLPack, CUDA."""
