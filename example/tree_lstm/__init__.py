"""Child-sum Tree-LSTM for semantic relatedness on SICK (Tai, Socher and Manning, 2015).

In the order in which data passes them: ``make_sample`` (or a download) -> ``data`` -> ``model``
-> ``metrics``; ``task`` puts them together for the training program, ``train``.
"""
