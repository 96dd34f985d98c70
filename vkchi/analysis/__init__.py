"""What is known of IR, for passes, autodiff and the emitter."""
