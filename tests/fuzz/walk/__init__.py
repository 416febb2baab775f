"""All operators of MXNet, batched and eager: `registry` has what MXNet says of them, `makers` what
to call those with that need more than that, `cases` draws calls, `worker` runs one both ways,
`workers` has some of those at work, and `table` says what came out."""

import gluon_edbatch  # noqa: F401  before MXNet, for later versions of NumPy
