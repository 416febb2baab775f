"""All access to MXNet's interfaces that are not public, and NDArray classes of this package."""
