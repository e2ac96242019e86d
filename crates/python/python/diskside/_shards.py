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

from .errors import ChangedError

_NAME = "sharding_indexed"
#: Before a shard that changed while it was read is read again, in seconds.
_PAUSES = (0, 0.01, 0.05, 0.25)
_OF_ZARR = "zarr.codecs.sharding.ShardingCodec"


class ShardingCodec(_ShardingCodec):
    """zarr's codec of shards, which gets the chunks of one shard in one batch if they are in a ``ZarrStore``."""

    async def _decode_partial_single(self, byte_getter: Any, selection: Any, shard_spec: Any) -> Any:
        from .zarr import ZarrStore

        if not isinstance(getattr(byte_getter, "store", None), ZarrStore):
            return await super()._decode_partial_single(byte_getter, selection, shard_spec)
        for pause in _PAUSES:
            seen = _Seen(byte_getter.store, byte_getter.path, anew=pause > 0)
            await asyncio.sleep(pause)
            try:
                decoded = await super()._decode_partial_single(seen, selection, shard_spec)
            except Exception:
                # An index that is of two versions may be anything.
                if seen.is_of_one_version:
                    raise
                continue
            if seen.wanted:
                await seen.get_wanted()
                if seen.is_of_one_version:
                    return await super()._decode_partial_single(seen, selection, shard_spec)
            elif seen.is_of_one_version:
                return decoded
        raise ChangedError(f"{byte_getter.store}/{byte_getter.path}: the shard changed while it was read")


class _Seen:
    """Gets the index, and leaves for later what is asked for after it."""

    def __init__(self, store: Any, path: str, *, anew: bool) -> None:
        self._store = store
        self._path = path
        self._anew = anew
        self._versions: set[int] = set()
        self._there: dict[ByteRequest | None, Buffer | None] = {}
        self.wanted: dict[ByteRequest, BufferPrototype] = {}

    async def get(self, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        if byte_range in self._there:
            return self._there[byte_range]
        if not self._there or byte_range is None:
            self._there[byte_range] = found = await self._get(prototype, byte_range)
            return found
        self.wanted[byte_range] = prototype
        return None

    async def get_wanted(self) -> None:
        gets = [self._get(prototype, byte_range) for byte_range, prototype in self.wanted.items()]
        self._there.update(zip(self.wanted, await asyncio.gather(*gets), strict=True))

    async def _get(self, prototype: BufferPrototype, byte_range: ByteRequest | None) -> Buffer | None:
        found: Buffer | None
        # Chunks are where the index says of the shard that it is of. They need not be looked for again, however long ago it came.
        known = next(iter(self._versions)) if self.is_of_one_version else None
        is_known = known is not None and known > 0
        found, version = await self._store._get(
            self._path, prototype, byte_range, version=known if is_known else None, anew=self._anew and not is_known
        )
        # A shard that is not there has one version, too, until a chunk of it is there.
        self._versions.add(-1 if found is None else version)
        return found

    @property
    def is_of_one_version(self) -> bool:
        """Whether all that it got belongs together."""
        return len(self._versions) == 1 and 0 not in self._versions


def use() -> None:
    """Has zarr take this codec, unless its user chose another."""
    if zarr.config.get(f"codecs.{_NAME}", _OF_ZARR) == _OF_ZARR:
        register_codec(_NAME, ShardingCodec)
        zarr.config.set({f"codecs.{_NAME}": f"{ShardingCodec.__module__}.{ShardingCodec.__qualname__}"})
