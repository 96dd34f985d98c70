"""Python source: syntax trees with spans, and facts that syntax alone decides."""
