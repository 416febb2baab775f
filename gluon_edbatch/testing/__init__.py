"""What tests of the package, and of schedulers written elsewhere, are made of."""
