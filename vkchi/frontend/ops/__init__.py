"""Operations on kernel values: operators, functions and methods that emit IR."""
