"""All that touches MXNet where its interface is not public, and NDArrays of our own."""
