"""Unrolling of serial loops, fully and partially."""
