"""The definition language, and what declaring does."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

import penstock.pipeline as dj
from penstock.pipeline.definition import parse
from penstock.pipeline.kinds import parse_kind
from penstock.pipeline.resolve import resolve, snake, table_name
from tests.pipeline.lab import Lab


def declare(schema: dj.Schema, name: str, definition: str, base: type = dj.Manual, **context: Any) -> Any:
    return schema(type(name, (base,), {"definition": definition}), context=context)


BAD_LINES = [
    ("a : int\n---\nb", 3, "expected 'name : type'"),
    ("a : int\n---\nb : quaternion", 3, "unknown type 'quaternion'"),
    ("a : int\n\n# x\n-> Missing", 4, "Missing is not declared"),
    ("a : int\na : int", 2, "is there already"),
    ("A : int", 1, "'A' is not an attribute name"),
    ("a = null : int", 1, "cannot default to null"),
    ("a : int\n---\nb = : int", 3, "nothing follows '='"),
    ("a : int\n---\nb = 'x : int", 3, "quote ' is not closed"),
    ("a : int\n---\n---\nb : int", 3, "a second '---'"),
    ('a : int\n---\nb = "many" : int', 3, "does not fit int32"),
    ("a : int\n---\nb = 300 : uint8", 3, "does not fit uint8"),
    ("a : int\n---\nb = 'z' : enum('x','y')", 3, "does not fit enum"),
    ("a : int\n---\nb : enum(x, y)", 3, "in quotes"),
    ("a : int\n---\nb : varchar(0)", 3, "length from 1"),
    ("a : int\n---\nb : decimal(30,2)", 3, "at most 18 digits"),
    ("a : <blob>", 1, "cannot be part of a primary key"),
    ("-> [nullable] Parent\na : int", 1, "cannot be nullable"),
    ("a : int\n---\n-> [maybe] Parent", 3, "unknown option 'maybe'"),
    ("-> Parent.proj('p')", 1, "is not a reference"),
    ("-> Parent.proj(q='nothing')", 1, "not in the primary key of Parent"),
    ("-> Parent; import os", 1, "is not a reference"),
    ("p : varchar(3)\n-> Parent", 2, "rename it"),
    ("p : int\n-> Parent", 2, "mean different things"),
    ("a : int\n---\nindex(b)", 3, "'b', which is no attribute"),
    ("a : int\n---\nindex()", 3, "at least one attribute"),
    ("a : int\n---\n-> Child", 3, "refers to itself"),
    (f"{'a' * 70} : int", 1, "longer than 63"),
]


def test_a_bad_line_is_named_and_nothing_is_created(schema: dj.Schema) -> None:
    Parent = declare(schema, "Parent", "p : int")
    for definition, line, said in BAD_LINES:
        with pytest.raises(dj.DefinitionError, match=rf"Child, line {line}: .*{re.escape(said)}") as caught:
            child = type("Child", (dj.Manual,), {"definition": definition})
            schema(child, context={"Parent": Parent, "Child": child})
        assert caught.value.line == line
    assert schema.list_tables() == ["parent"]


@pytest.mark.parametrize("definition", ["", "# nothing\n", "---\nb : int"])
def test_an_empty_key_is_refused(schema: dj.Schema, definition: str) -> None:
    with pytest.raises(dj.DefinitionError, match="Child: the primary key is empty"):
        declare(schema, "Child", definition)
    assert schema.list_tables() == []


def test_a_bad_part_takes_its_master_along(schema: dj.Schema) -> None:
    class Master(dj.Manual):
        definition = """
        m : int
        """

        class Piece(dj.Part):
            definition = """
            -> master
            p : nonsense
            """

    with pytest.raises(dj.DefinitionError, match="Piece, line 3"):
        schema(Master)
    assert schema.list_tables() == []


def test_a_part_needs_its_master(schema: dj.Schema) -> None:
    class Master(dj.Manual):
        definition = """
        m : int
        """

        class Piece(dj.Part):
            definition = """
            p : int
            """

    with pytest.raises(dj.DefinitionError, match="needs '-> master'"):
        schema(Master)


@pytest.mark.parametrize(
    ("name", "base", "said"),
    [
        ("lower_case", dj.Manual, "CamelCase"),
        ("X" * 80, dj.Manual, "longer than"),
    ],
)
def test_bad_class_names(schema: dj.Schema, name: str, base: type, said: str) -> None:
    with pytest.raises(dj.DefinitionError, match=said):
        declare(schema, name, "a : int", base)


@pytest.mark.parametrize("name", ["", "Lab", "a-b", "lab.x", "public", "pg_catalog", "penstock_x", "x" * 60, 'a"; --'])
def test_bad_schema_names(home: str, name: str) -> None:
    with pytest.raises(dj.PipelineError, match="cannot name a schema"):
        dj.Schema(name)


def test_a_schema_takes_only_tiers(schema: dj.Schema) -> None:
    with pytest.raises(dj.PipelineError, match="derived from Manual"):
        schema(dict)  # type: ignore[type-var]
    with pytest.raises(dj.PipelineError, match="not declared yet"):
        type("Loose", (dj.Manual,), {"definition": "a : int"})()
    with pytest.raises(dj.PipelineError, match=r"object with a Database as \.db"):
        dj.Schema("lab", object())


def test_a_computed_table_needs_a_parent(schema: dj.Schema) -> None:
    with pytest.raises(dj.DefinitionError, match="takes its key from other tables"):
        declare(schema, "Alone", "a : int", dj.Computed)


def test_two_computed_tables_cannot_share_a_job_table(lab: Lab) -> None:
    with pytest.raises(dj.DefinitionError, match="would share the job table ~~filtered_image"):
        declare(lab.schema, "FilteredImage", "-> Image", dj.Imported, Image=lab.Image)


TYPES = {
    "int": "int32", "int unsigned": "uint32", "INT(11) UNSIGNED": "uint32", "tinyint unsigned": "uint8", "bigint": "int64",
    "uint8": "uint8", "uint16": "uint16", "uint32": "uint32", "uint64": "uint64", "int8": "int8", "int16": "int16",
    "int32": "int32", "int64": "int64", "float": "float64", "float64": "float64", "double": "float64", "bool": "bool",
    "date": "date", "datetime": "datetime", "timestamp": "timestamp", "uuid": "uuid", "json": "json",
    "mediumblob": "blob", "longblob": "blob", "<blob>": "blob", "<djblob>": "blob", "decimal": "decimal",
    "decimal(9, 2)": "decimal", "char(3)": "char", "varchar(255)": "varchar", "enum('a', \"b\")": "enum",
    "smallint": "int16", "bigint unsigned": "uint64",
}  # fmt: skip


@pytest.mark.parametrize(("written", "kind"), TYPES.items())
def test_types(written: str, kind: str) -> None:
    assert parse_kind(written)[0] == kind


@pytest.mark.parametrize(
    "written", ["int text", "float unsigned", "varchar", "enum()", "enum('a','a')", "blob(3)", "int; drop"]
)
def test_bad_types(written: str) -> None:
    with pytest.raises(ValueError):
        parse_kind(written)


@given(st.text(max_size=200))
def test_any_text_parses_or_says_why(definition: str) -> None:
    try:
        found = parse("Any", definition)
    except dj.DefinitionError as error:
        assert str(error).startswith("Any")
    else:
        assert found.lines


names = st.from_regex(r"[a-z][a-z0-9_]{0,10}", fullmatch=True)
kinds = st.sampled_from(
    [written for written in TYPES if "blob" not in written and written not in ("json", "float", "float64", "double")]
)


@given(
    st.lists(st.tuples(names, kinds), min_size=1, max_size=5, unique_by=lambda item: item[0]),
    st.lists(st.tuples(names, st.sampled_from(list(TYPES))), max_size=5, unique_by=lambda item: item[0]),
    st.text(alphabet="abc '\"#:-", max_size=20),
)
def test_what_describe_writes_declares_the_same_table(key: Any, rest: Any, comment: str) -> None:
    from penstock.pipeline.describe import describe

    used = {name for name, _ in key}
    lines = [f"{name} : {kind}  # {comment}" for name, kind in key]
    lines += ["---", *(f"{name} = null : {kind}" for name, kind in rest if name not in used)]

    def nobody(name: str) -> Any:
        raise AssertionError(name)

    first = resolve("Any", "\n".join(lines), schema="lab", tier="manual", find_parent=nobody)
    again = resolve("Any", describe(first), schema="lab", tier="manual", find_parent=nobody)
    assert again == first


@pytest.mark.parametrize(
    ("name", "snaked"),
    [("FilteredImage", "filtered_image"), ("EEG", "e_e_g"), ("EEGSession2", "e_e_g_session2"), ("A", "a")],
)
def test_names(name: str, snaked: str) -> None:
    assert snake(name) == snaked
    assert table_name(name, "computed") == f"__{snaked}"
    assert table_name(name, "lookup") == f"#{snaked}"


def test_all_kinds_of_references(schema: dj.Schema) -> None:
    Person = declare(schema, "Person", "person_id : int")
    Session = declare(schema, "Session", "-> Person\nsession : int", Person=Person)
    Scan = declare(
        schema, "Scan",
        """
        # one scan
        -> Session
        scan : int
        ---
        -> Person.proj(operator='person_id')
        -> [nullable] Person.proj(reviewer='person_id')
        -> [unique, nullable] Person.proj(owner='person_id')
        gain = 1.5 : float   # how loud
        index(gain)
        unique index (gain, operator)
        """,
        Person=Person, Session=Session,
    )  # fmt: skip
    Person.insert([(1,), (2,)])
    Session.insert1((1, 1))
    Scan.insert1({"person_id": 1, "session": 1, "scan": 1, "operator": 2})
    row = Scan.fetch1()
    assert (row["operator"], row["reviewer"], row["gain"]) == (2, None, 1.5)
    with pytest.raises(dj.MissingParentError):
        Scan.insert1({"person_id": 1, "session": 1, "scan": 2, "operator": 9, "gain": 2})
    with pytest.raises(dj.DuplicateError):
        Scan.insert1({"person_id": 1, "session": 1, "scan": 2, "operator": 2})
    Scan.insert1({"person_id": 1, "session": 1, "scan": 3, "operator": 2, "gain": 3, "owner": 1})
    with pytest.raises(dj.DuplicateError):
        Scan.insert1({"person_id": 1, "session": 1, "scan": 4, "operator": 2, "gain": 4, "owner": 1})
    assert Scan.describe() == (
        "# one scan\n-> Session\nscan : int32\n---\n-> Person.proj(operator='person_id')\n"
        "-> [nullable] Person.proj(reviewer='person_id')\n-> [nullable, unique] Person.proj(owner='person_id')\n"
        "gain = 1.5 : float64  # how loud\nindex(gain)\nunique index(gain, operator)\n"
    )
    assert "how loud" in repr(Scan.heading)


def test_a_parent_may_live_in_another_schema(lab: Lab) -> None:
    other = dj.Schema("other")
    Note = declare(other, "Note", "-> Subject\n---\nnote : varchar(10)", Subject=lab.Subject)
    lab.fill(1, 1)
    Note.insert1((1, "hello"))
    assert (lab.Subject & {"subject_id": 1}).delete_preview() == {"lab.subject": 1, "lab.image": 1, "other.note": 1}
    with pytest.raises(dj.AccessError, match=r"other\.note depends on lab\.subject"):
        lab.schema.drop()
    other.drop()
    lab.schema.drop()
    assert lab.schema.list_tables() == [] and other.list_tables() == []


def test_the_same_class_again_binds_to_the_same_table(lab: Lab) -> None:
    lab.fill(1, 1)
    again = Lab(dj.Schema("lab"))
    assert len(again.Image) == 1


def test_a_changed_class_warns_and_the_database_rules(schema: dj.Schema) -> None:
    declare(schema, "Thing", "a : int\n---\nb : int")
    with pytest.warns(dj.DefinitionChanged, match=r"Thing\.alter\(\)"):
        Thing = declare(schema, "Thing", "a : int\n---\nb : int\nc = 3 : int")
    assert Thing.heading.names == ["a", "b"]


def test_alter_adds_and_drops(schema: dj.Schema) -> None:
    Thing = declare(schema, "Thing", "a : int\n---\nb : int\nindex(b)")
    Thing.insert1((1, 2))
    Thing.definition = """
    # now with a comment
    a : int
    ---
    c = null : varchar(10)
    d = 7 : int
    e = "it's: on" : varchar(10)
    f = 1.25 : decimal(6,2)
    g = true : bool
    h = 'x' : enum('x', 'y')
    unique index(c)
    """
    Thing.alter()
    assert Thing.fetch1() == {
        "a": 1, "c": None, "d": 7, "e": "it's: on", "f": __import__("decimal").Decimal("1.25"), "g": True, "h": "x",
    }  # fmt: skip
    Thing.insert1({"a": 2, "c": "once"})
    with pytest.raises(dj.DuplicateError):
        Thing.insert1({"a": 3, "c": "once"})
    assert dj.Schema("lab").table("thing").heading.names == ["a", "c", "d", "e", "f", "g", "h"]


def test_alter_refuses_what_would_lose_or_break(lab: Lab) -> None:
    lab.fill(1, 1)
    lab.FilteredImage.populate()
    for definition, said in (
        ("-> Subject\n---\nfiltered_image : <blob>", "while it holds rows"),
        ("-> Image\n---\nfiltered_image : int", "cannot change from"),
        ("-> Image\n---\nfiltered_image : <blob>\nmore : int", "needs a default"),
    ):
        lab.FilteredImage.definition = definition
        with pytest.raises(dj.DefinitionError, match=said):
            lab.FilteredImage.alter()
    assert lab.FilteredImage.fetch1("filtered_image") == [2, 2]
    lab.Subject.definition = "subject_id : int\nmore : int"
    with pytest.raises(dj.DefinitionError, match=r"while lab\.image"):
        lab.Subject.alter()


def test_drop_refuses_to_leave_orphans(lab: Lab) -> None:
    lab.fill(1, 1)
    with pytest.raises(dj.AccessError, match=r"depends on lab\.subject"):
        lab.Subject.drop()
    lab.Subject.drop(cascade=True)
    assert lab.schema.list_tables() == []
    with pytest.raises(dj.PipelineError, match="not declared"):
        lab.Image.fetch()


def test_the_schema_refuses_impossible_rows(schema: dj.Schema) -> None:
    declare(schema, "Thing", "a : uint8\n---\nb : enum('x', 'y')")
    name = '"lab.thing"' if schema.connection.backend == "sqlite" else "lab.thing"
    for values in ("(-1, 'x')", "(256, 'x')", "(1, 'z')"):
        with pytest.raises(Exception, match=r"(?i)check"), schema.connection.transaction as tx:
            tx.run(text(f"INSERT INTO {name} VALUES {values}"))


def test_lookup_contents_are_there_once(schema: dj.Schema) -> None:
    class Method(dj.Lookup):
        definition = """
        method : varchar(10)
        ---
        note = "" : varchar(10)
        """
        contents = [("mean", "a"), {"method": "median"}]  # noqa: RUF012

    schema(Method)
    schema(Method)
    assert len(Method) == 2 and (Method & {"method": "mean"}).fetch1("note") == "a"


def test_settings_refuse_nonsense() -> None:
    with pytest.raises(dj.PipelineError, match="no setting"):
        dj.config["jobs.nonsense"] = 1
    with pytest.raises(dj.PipelineError, match="takes bool"):
        dj.config["jobs.keep_completed"] = "yes"
    with pytest.raises(dj.PipelineError, match="at least"):
        dj.config["jobs.lease_seconds"] = 0
