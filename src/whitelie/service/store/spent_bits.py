"""Spent bits in memory: which reports of a batch are free, as far as is known here."""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from whitelie.service.store import BLOCK, Batch, Block

CACHED = 65_536
"""Blocks of spent bits that are kept in memory."""

FREE = bytes(BLOCK // 8)

Address = tuple[int, int]
"""An epoch, and the number of one of its blocks."""


class Change(NamedTuple):
    """What a batch does: which reports are free, rows of counts to add, and bits to set.

    A row of `counts` is (experiment, minute, arm, issued, answered, ones), one of `held`
    (experiment, arm, answered, ones, step) or None for an unknown step. The bits of `added` are new
    ones alone.
    """

    free: list[bool]
    counts: list[tuple[int, ...]]
    held: list[tuple[int | None, ...]]
    added: list[Block]


class SpentBits:
    """Blocks of spent bits that were seen lately; `read` looks up those that were not."""

    def __init__(self, read: Callable[[Address], bytes]) -> None:
        self._read = read
        self._blocks: OrderedDict[Address, bytes] = OrderedDict()

    def change(self, batch: Batch) -> Change:
        """Look at every report and return what is to be written."""
        counts = {
            (experiment, minute, arm): [issued, 0, 0]
            for (experiment, arm, minute), issued in batch.issued.items()
        }
        known: dict[Address, bytes] = {}
        added: dict[Address, bytearray] = {}
        expiries: dict[Address, int] = {}
        free = []
        for (experiment, arm, epoch, sequence, minute, expiry), bit in batch.reports:
            address = epoch, sequence // BLOCK
            if address not in known:
                known[address], added[address] = self[address], bytearray(BLOCK // 8)
            bits, byte, mask = added[address], sequence % BLOCK >> 3, 1 << (sequence & 7)
            free.append(not (bits[byte] | known[address][byte]) & mask)
            if free[-1]:
                bits[byte] |= mask
                expiries[address] = max(expiry, expiries.get(address, expiry))
                count = counts.setdefault((experiment, minute, arm), [0, 0, 0])
                count[1] += 1
                count[2] += bit
        blocks = [Block(*address, expiries[address], bytes(added[address])) for address in expiries]
        held: dict[tuple[int, int], list[int]] = {}
        for (experiment, _, arm), (_, answered, ones) in counts.items():
            if answered:
                sums = held.setdefault((experiment, arm), [0, 0])
                sums[0] += answered
                sums[1] += ones
        return Change(
            free,
            [(*place, *count) for place, count in counts.items()],
            [(*place, *sums, batch.steps.get(place[0])) for place, sums in held.items()],
            blocks,
        )

    def __getitem__(self, address: Address) -> bytes:
        bits = self._blocks.get(address)
        if bits is None:
            bits = self._read(address)
            self._keep(address, bits)
        return bits

    def learn(self, block: Block) -> None:
        """Add bits that are known to be spent."""
        address = block.epoch, block.block
        self._keep(address, union(self[address], block.bits))

    def forget(self, address: Address) -> None:
        """Forget a block that was dropped."""
        self._blocks.pop(address, None)

    def clear(self) -> None:
        """Forget everything."""
        self._blocks.clear()

    def __len__(self) -> int:
        return len(self._blocks)

    def _keep(self, address: Address, bits: bytes) -> None:
        self._blocks[address] = bits
        self._blocks.move_to_end(address)
        if len(self._blocks) > CACHED:
            self._blocks.popitem(last=False)


def union(one: bytes, other: bytes) -> bytes:
    """Return the bits that are set in one of two blocks."""
    return (int.from_bytes(one) | int.from_bytes(other)).to_bytes(len(one))
