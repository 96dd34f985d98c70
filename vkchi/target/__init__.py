"""What is compiled for: capabilities, options, shaders as data."""
