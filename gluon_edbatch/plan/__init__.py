"""From a schedule to a plan of memory: which rows each batch writes, and which it reads how."""
