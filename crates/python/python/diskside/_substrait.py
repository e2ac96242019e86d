"""Plans of Substrait, as DataFusion reads them over tables that are scanned.

DataFusion leaves the conditions and the choice of columns of a plan's reads to its tables, and takes a table only as the plan's schema has
it. So those become steps of their own before it reads the plan, and the schema of a read is that of its table: the columns that the plan
knows of, in its order, any of which may be NULL.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ._planner import Asked, Read, said_by
from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection

    import datafusion


class Substrait(Asked):
    """A query as a plan of Substrait: the bytes of a ``Plan``, or its JSON."""

    kind = "substrait"

    def __init__(self, plan: Any) -> None:
        try:
            from datafusion.substrait import Plan, Serde
        except ImportError:
            raise UsageError("substrait takes DataFusion: pip install 'diskside[sql]'") from None
        if not isinstance(plan, str):
            try:
                plan = bytes(memoryview(plan))
            except TypeError:
                raise UsageError(f"substrait: {plan!r} is no plan: give its bytes, or its JSON as a text") from None
        self.given = plan
        with said_by("substrait: no plan"):
            message = Plan.from_json(plan) if isinstance(plan, str) else Serde.deserialize_bytes(plan)
            self._plan: dict[str, Any] = json.loads(message.to_json())
        if _has_no_number(self._plan):
            raise UsageError("substrait: the plan has NaN or an infinite number as a value, which is not done")
        self._text: str | None = None

    def reads(self, tables: Collection[str]) -> dict[str, Read]:
        rewriting = _Rewriting(tables)
        relations = rewriting.of(self._plan.get("relations", []))
        if not relations:
            raise UsageError("substrait: the plan has no relation: no rows are asked for")
        if missing := list(dict.fromkeys(rewriting.missing)):
            raise UsageError(
                f"substrait: the plan reads {', '.join(missing)}, and no table of that name was given; "
                f'give each by its name, as in substrait(plan, {missing[0]}="FILE")'
            )
        self._text = json.dumps(self._plan | {"relations": relations})
        return rewriting.reads

    def frame(self, context: datafusion.SessionContext) -> datafusion.DataFrame:
        from datafusion.substrait import Consumer, Plan

        assert self._text is not None, "reads() comes first"
        with said_by(self.kind):
            plan = Consumer.from_substrait_plan(context, Plan.from_json(self._text))
            return context.create_dataframe_from_logical_plan(plan)


def _has_no_number(node: Any) -> bool:
    """Whether there is a floating-point number that JSON does not have."""
    if isinstance(node, list):
        return any(_has_no_number(one) for one in node)
    if not isinstance(node, dict):
        return False
    return any((key in ("fp32", "fp64") and value is None) or _has_no_number(value) for key, value in node.items())


class _Rewriting:
    """Makes the reads of a plan such that DataFusion does what they say."""

    def __init__(self, tables: Collection[str]) -> None:
        self._tables = tables
        self.reads: dict[str, Read] = {}
        self.missing: list[str] = []

    def of(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.of(one) for one in node]
        if not isinstance(node, dict):
            return node
        if len(node) == 1 and isinstance(node.get("read"), dict):
            return self._read({key: self.of(value) for key, value in node["read"].items()})
        return {key: self.of(value) for key, value in node.items()}

    def _read(self, read: dict[str, Any]) -> dict[str, Any]:
        if "virtualTable" in read:
            return {"read": read}
        if (named := read.get("namedTable")) is None:
            instead = 'have it read a named table, and give that, as in substrait(plan, t="FILE")'
            raise UsageError(f"substrait: the plan reads {_source(read)}; {instead}")
        schema, names = read.get("baseSchema"), named.get("names", [])
        if schema is None or not names:
            raise UsageError("substrait: the plan reads a table without a name or without columns")
        kinds = schema.get("struct", {}).get("types", [])
        columns = _top(schema.get("names", []), kinds)
        step: dict[str, Any] = {
            "read": {
                "common": {"direct": {}},
                "baseSchema": {"names": schema.get("names", []), "struct": {"types": [_nullable(kind) for kind in kinds]}},
                "namedTable": {"names": [self._name(names, columns)]},
            }
        }
        kind = "read"
        if "filter" in read:
            kind, step = "filter", {"filter": {"common": {"direct": {}}, "input": step, "condition": read["filter"]}}
        if (chosen := _chosen(read, len(columns))) is not None:
            step[kind]["common"] = {"emit": {"outputMapping": chosen}}
        return step

    def _name(self, names: list[str], columns: list[str]) -> str:
        whole = ".".join(names)
        table = whole if whole in self._tables else names[-1]
        if table not in self._tables:
            self.missing.append(whole)
        wanted, name, count = Read(table, columns), table, 1
        # A table that is read with other columns, too, is another one to DataFusion.
        while self.reads.get(name, wanted) != wanted or (name != table and name in self._tables):
            count += 1
            name = f"{table} {count}"
        self.reads[name] = wanted
        return name


def _source(read: dict[str, Any]) -> str:
    """Any other source than a named table, as messages have it."""
    if (files := read.get("localFiles")) is not None:
        items = [str(value) for item in files.get("items", []) for key, value in item.items() if key.startswith("uri")]
        return f"local files ({', '.join(items)})"
    return next((f"a source of the kind {kind}" for kind in read if kind.endswith(("Table", "table"))), "nothing that has a name")


def _top(names: list[str], kinds: list[Any]) -> list[str]:
    """The names of columns, of a list that also has those of the fields within them."""
    found, at = list[str](), 0
    for kind in kinds:
        if at >= len(names):
            raise UsageError("substrait: a schema of the plan has fewer names than columns")
        found.append(names[at])
        at += 1 + _fields(kind)
    if at != len(names) or len(set(found)) != len(found):
        raise UsageError("substrait: a schema of the plan has other names than columns, or one of them twice")
    return found


def _fields(kind: Any) -> int:
    if not isinstance(kind, dict):
        return 0
    if "struct" in kind:
        return sum(1 + _fields(one) for one in kind["struct"].get("types", []))
    if "list" in kind:
        return _fields(kind["list"].get("type"))
    if "map" in kind:
        return _fields(kind["map"].get("key")) + _fields(kind["map"].get("value"))
    return 0


def _nullable(kind: dict[str, Any]) -> dict[str, Any]:
    # A file may have NULL anywhere.
    found = {name: of | {"nullability": "NULLABILITY_NULLABLE"} if isinstance(of, dict) else of for name, of in kind.items()}
    # DataFusion's own tables have views of bytes, and it takes no others for them, as it does with texts.
    if isinstance(of := found.get("binary"), dict):
        of.pop("typeVariationReference", None)
    return found


def _chosen(read: dict[str, Any], count: int) -> list[int] | None:
    """The columns that leave a read, as numbers of those of its schema; None: all."""
    chosen = None
    if (selected := read.get("projection", {}).get("select")) is not None:
        items = selected.get("structItems", [])
        if any("child" in item for item in items):
            raise UsageError("substrait: the plan reads a part of a nested column: have it read the column, and take the part of that")
        chosen = [item.get("field", 0) for item in items]
    if (emitted := read.get("common", {}).get("emit")) is not None:
        among = list(range(count)) if chosen is None else chosen
        mapping = emitted.get("outputMapping", [])
        if any(not 0 <= one < len(among) for one in mapping):
            raise UsageError("substrait: the plan takes a column of a read that the read does not have")
        chosen = [among[one] for one in mapping]
    if chosen is not None and any(not 0 <= one < count for one in chosen):
        raise UsageError("substrait: the plan takes a column of a table that its schema does not have")
    return chosen
