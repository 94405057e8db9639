"""A cache of spent bits: which reports of a batch count, as far as this process knows."""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from whitelie.service.store.contract import BITS_PER_BLOCK, Batch, Block

MAX_CACHED_BLOCKS = 65_536

NO_BIT_SPENT = bytes(BITS_PER_BLOCK // 8)
"""The bits of a block that nobody has stored yet."""

BlockId = tuple[int, int]
"""An epoch, and the number of one of its blocks."""


class Change(NamedTuple):
    """What a batch changes: whose bits are free, which counts to add, and which bits to set.

    A row of `counts` is (experiment, minute, arm, issued, answered, ones). A row of `withheld` is
    (experiment, arm, answered, ones, step), with None for a step that the batch does not name. A
    block of `added` has new bits only.
    """

    free: list[bool]
    counts: list[tuple[int, ...]]
    withheld: list[tuple[int | None, ...]]
    added: list[Block]


class SpentBits:
    """The blocks used most recently; `read` returns a block that is not cached."""

    def __init__(self, read: Callable[[BlockId], bytes]) -> None:
        self._read = read
        self._blocks: OrderedDict[BlockId, bytes] = OrderedDict()

    def change(self, batch: Batch) -> Change:
        """Return what a batch is to write."""
        counts = {
            (experiment, minute, arm): [issued, 0, 0]
            for (experiment, arm, minute), issued in batch.issued.items()
        }
        known: dict[BlockId, bytes] = {}
        added: dict[BlockId, bytearray] = {}
        expiries: dict[BlockId, int] = {}
        free = []
        latest = None
        for (experiment, arm, epoch, sequence, minute, expiry), bit in batch.reports:
            block_id = epoch, sequence // BITS_PER_BLOCK
            if block_id != latest:  # mostly it is the block of the report before
                latest = block_id
                if block_id not in known:
                    known[block_id] = self[block_id]
                    added[block_id] = bytearray(BITS_PER_BLOCK // 8)
                spent, bits = known[block_id], added[block_id]
            byte, mask = sequence % BITS_PER_BLOCK >> 3, 1 << (sequence & 7)
            is_free = not (bits[byte] | spent[byte]) & mask
            free.append(is_free)
            if is_free:
                bits[byte] |= mask
                if expiry > expiries.get(block_id, -1):
                    expiries[block_id] = expiry
                count = counts.setdefault((experiment, minute, arm), [0, 0, 0])
                count[1] += 1
                count[2] += bit
        blocks = [
            Block(*block_id, expiries[block_id], bytes(added[block_id])) for block_id in expiries
        ]
        withheld: dict[tuple[int, int], list[int]] = {}
        for (experiment, _, arm), (_, answered, ones) in counts.items():
            if answered:
                sums = withheld.setdefault((experiment, arm), [0, 0])
                sums[0] += answered
                sums[1] += ones
        return Change(
            free,
            [(*cell, *count) for cell, count in counts.items()],
            [(*arm, *sums, batch.steps.get(arm[0])) for arm, sums in withheld.items()],
            blocks,
        )

    def __getitem__(self, block_id: BlockId) -> bytes:
        bits = self._blocks.get(block_id)
        if bits is None:
            bits = self._read(block_id)
            self._keep(block_id, bits)
        return bits

    def learn(self, block: Block) -> None:
        """Add bits that are spent to the cache."""
        block_id = block.epoch, block.block
        self._keep(block_id, union(self[block_id], block.bits))

    def forget(self, block_id: BlockId) -> None:
        """Remove a block that the store has dropped."""
        self._blocks.pop(block_id, None)

    def clear(self) -> None:
        """Empty the cache."""
        self._blocks.clear()

    def __len__(self) -> int:
        return len(self._blocks)

    def _keep(self, block_id: BlockId, bits: bytes) -> None:
        self._blocks[block_id] = bits
        self._blocks.move_to_end(block_id)
        if len(self._blocks) > MAX_CACHED_BLOCKS:
            self._blocks.popitem(last=False)


def union(one: bytes, other: bytes) -> bytes:
    """Return the bits that are set in one of two blocks."""
    return (int.from_bytes(one) | int.from_bytes(other)).to_bytes(len(one))
