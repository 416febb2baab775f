"""Choose the samples of each worker in each step."""

import heapq
from collections.abc import Sequence
from typing import Optional, Union

import numpy as np


class BalancedSampler:
    r"""Draw minibatches of nearly equal cost and size for each of several workers.

    The samples of a step are drawn for all workers together, and dealt out, the costliest first,
    each to the worker with the least cost so far. The result depends on the arguments and the
    number of the epoch only. So workers need no communication, and training can resume at any step.

    Parameters
    ----------
    costs : sequence of float, or int
        Cost of each sample, in any unit (`recorded_calls` counts calls); or the number of samples,
        with equal costs.
    batch_size : int
        Samples of a worker in a step; one more if a rest of fewer samples than workers is added,
        fewer in the last step.
    num_workers, rank : int, default 1 and 0
        Number of workers, and number of this one.
    shuffle : bool, default True
        Whether to shuffle samples in each epoch.
    bucket_steps : int, default 1
        Number of steps whose samples are sorted by cost before they are divided among these steps,
        which are then shuffled: samples of a step get similar costs. 1 sorts nothing, so a step has
        random samples.
    seed : int, default 0
        Seed of the random order.

    Raises
    ------
    ValueError
        If there are fewer samples than workers, or an argument is out of range.

    Examples
    --------
    >>> sampler = BalancedSampler([3, 1, 2, 5, 1, 4], 1, num_workers=2, rank=0)
    >>> for minibatch in sampler.epoch(1):      # lists of indices
    ...     train([samples[i] for i in minibatch])
    >>> rest = sampler.epoch(1)[2:]             # where it was interrupted after 2 steps
    >>> loader = gluon.data.DataLoader(
    ...     dataset, batch_sampler=sampler.epoch(1), batchify_fn=edb.data.as_list
    ... )
    """

    def __init__(
        self,
        costs: Union[int, Sequence[float]],
        batch_size: int,
        *,
        num_workers: int = 1,
        rank: int = 0,
        shuffle: bool = True,
        bucket_steps: int = 1,
        seed: int = 0,
    ):
        self.costs = np.ones(costs) if isinstance(costs, int) else np.asarray(costs, np.float64)
        self.num_workers, self.rank = num_workers, rank
        self.shuffle, self.seed, self.bucket_steps = shuffle, seed, bucket_steps
        if min(batch_size, num_workers, bucket_steps) < 1 or not 0 <= rank < num_workers:
            raise ValueError(
                f'batch_size={batch_size}, num_workers={num_workers}, bucket_steps={bucket_steps} '
                f'and rank={rank}: the first three are 1 or more, and a rank is below the workers'
            )
        if not np.isfinite(self.costs).all() or (self.costs < 0).any():
            raise ValueError('a cost is a finite number of 0 or more')
        if len(self.costs) < num_workers:
            raise ValueError(
                f'{len(self.costs)} samples for {num_workers} workers: each needs one at least'
            )
        self._ends = _ends(len(self.costs), batch_size * num_workers, num_workers)

    def __len__(self) -> int:
        """Return the number of steps of an epoch, equal for every worker."""
        return len(self._ends)

    @property
    def joined_sizes(self) -> list[int]:
        """Samples of all workers in each step of an epoch: the divisor for a sum of losses."""
        return np.diff([0, *self._ends]).tolist()

    def epoch(self, number: int) -> list[list[int]]:
        """Return the minibatches of this worker in an epoch.

        Parameters
        ----------
        number : int
            Number of the epoch; each has another order, equal in every run.

        Returns
        -------
        list of list of int
            Indices of the samples of each step.
        """
        return [self.deal(step)[self.rank] for step in self._joined(number)]

    def deal(self, joined: np.ndarray) -> list[list[int]]:
        """Deal the samples of a step out to all workers.

        Parameters
        ----------
        joined : numpy.ndarray
            (n,) indices; n is the number of workers or more.

        Returns
        -------
        list of list of int
            For each worker, n / workers samples, rounded up or down, in the order of `joined`.
        """
        least, more = divmod(len(joined), self.num_workers)
        hands: list[list[int]] = [[] for _ in range(self.num_workers)]
        loads = [(0.0, worker) for worker in range(self.num_workers)]
        costs = self.costs[joined]
        for place in np.argsort(-costs, kind='stable').tolist():
            load, worker = heapq.heappop(loads)
            while len(hands[worker]) == least and not more:  # it may take no more
                load, worker = heapq.heappop(loads)
            more -= len(hands[worker]) == least
            hands[worker].append(place)
            if len(hands[worker]) <= least:
                heapq.heappush(loads, (load + costs[place], worker))
        return [joined[sorted(hand)].tolist() for hand in hands]

    def _joined(self, epoch: int) -> list[np.ndarray]:
        """Return the samples of each step, of all workers together."""
        count = len(self.costs)
        random = np.random.RandomState([self.seed, epoch])
        order = random.permutation(count) if self.shuffle else np.arange(count)
        steps = np.split(order, self._ends[:-1])
        if self.bucket_steps == 1:
            return steps
        bucketed: list[np.ndarray] = []
        for begin in range(0, len(steps), self.bucket_steps):
            bucket = steps[begin : begin + self.bucket_steps]
            samples = np.concatenate(bucket)
            samples = samples[np.argsort(self.costs[samples], kind='stable')]
            cut = np.split(samples, np.cumsum([len(step) for step in bucket])[:-1])
            # Steps of one size change places: what a step is divided by stays what it is.
            places = [i for i, step in enumerate(cut) if len(step) == len(cut[0])]
            moved = random.permutation(places) if self.shuffle else places
            for place, other in zip(places, [cut[i] for i in moved]):
                cut[place] = other
            bucketed += cut
        return bucketed


def _ends(count: int, joined: int, workers: int) -> list[int]:
    """Return where each step ends among all samples; every worker has at least one in the last."""
    ends = list(range(joined, count, joined))
    if ends and count - ends[-1] < workers:
        ends.pop()
    return [*ends, count]


def idle_share(
    sampler: BalancedSampler, epochs: Sequence[int] = (0,), costs: Optional[np.ndarray] = None
) -> float:
    """Return the share of time that workers would wait for the slowest in each step.

    Parameters
    ----------
    sampler : BalancedSampler
        The sampler of any worker.
    epochs : sequence of int
        Numbers of the epochs to analyse.
    costs : numpy.ndarray, optional
        Actual costs, if they differ from the sampler's.

    Returns
    -------
    float
        A number from 0 to 1.
    """
    costs = sampler.costs if costs is None else costs
    worked = waited = 0.0
    for epoch in epochs:
        for joined in sampler._joined(epoch):
            loads = [costs[hand].sum() for hand in sampler.deal(joined)]
            worked += sum(loads)
            waited += max(loads) * len(loads) - sum(loads)
    return waited / (worked + waited)
