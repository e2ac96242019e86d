"""Chunks of a shard that are read together.

zarr-python 3.1 gets the chunks that it wants of a shard one behind another, each a round trip. Here it is asked twice: at first
to see which it gets, and again with all of them at hand.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import zarr
from zarr.codecs import ShardingCodec as _ShardingCodec
from zarr.registry import register_codec

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

_NAME = "sharding_indexed"
_OF_ZARR = "zarr.codecs.sharding.ShardingCodec"


class ShardingCodec(_ShardingCodec):
    """zarr's codec of shards, which gets the chunks of one shard in one batch if they are in a ``ZarrStore``."""

    async def _decode_partial_single(self, byte_getter: Any, selection: Any, shard_spec: Any) -> Any:
        from .zarr import ZarrStore

        if not isinstance(getattr(byte_getter, "store", None), ZarrStore):
            return await super()._decode_partial_single(byte_getter, selection, shard_spec)
        seen = _Seen(byte_getter)
        decoded = await super()._decode_partial_single(seen, selection, shard_spec)
        if not seen.wanted:
            return decoded
        await seen.get_wanted()
        return await super()._decode_partial_single(seen, selection, shard_spec)


class _Seen:
    """Gets the index, and leaves for later what is asked for after it."""

    def __init__(self, byte_getter: Any) -> None:
        self._byte_getter = byte_getter
        self._there: dict[ByteRequest | None, Buffer | None] = {}
        self.wanted: dict[ByteRequest, BufferPrototype] = {}

    async def get(self, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        if byte_range in self._there:
            return self._there[byte_range]
        if not self._there or byte_range is None:
            found: Buffer | None = await self._byte_getter.get(prototype, byte_range)
            self._there[byte_range] = found
            return found
        self.wanted[byte_range] = prototype
        return None

    async def get_wanted(self) -> None:
        gets = [self._byte_getter.get(prototype, byte_range) for byte_range, prototype in self.wanted.items()]
        self._there.update(zip(self.wanted, await asyncio.gather(*gets), strict=True))


def use() -> None:
    """Has zarr take this codec, unless its user chose another."""
    if zarr.config.get(f"codecs.{_NAME}", _OF_ZARR) == _OF_ZARR:
        register_codec(_NAME, ShardingCodec)
        zarr.config.set({f"codecs.{_NAME}": f"{ShardingCodec.__module__}.{ShardingCodec.__qualname__}"})
