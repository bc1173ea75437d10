"""The imports between the Python files of worker-startup: no circles, and folders in one order."""

import ast
import os
from functools import cache
from pathlib import Path

import pytest

from environment import WORKER

# The folders of gleaner_worker that the files of each folder may import from, beside their own.
ALLOWED = {
    "storage": set(),
    "limited": set(),
    "records": {"limited"},
    "model": {"limited", "storage"},
    "shards": {"records", "model", "storage"},
    "extract": {"records", "model", "shards", "storage"},
    "jobs": {"storage"},
    "source": {"jobs", "storage"},
    "agent": {"extract", "jobs", "model", "records", "source", "storage"},
    "preflight": {"model", "storage"},
    "verify": {"records", "model", "shards", "storage"},
    "reference": {"records", "model", "shards", "storage", "verify"},
    "estimate": {"records", "model", "shards", "preflight", "storage"},
}


@cache
def read_imports(root):
    """{module: the modules under `root` that its file imports}, also where only a type checker imports them."""
    paths = {module_of(path.relative_to(root)): path for path in sorted(Path(root).rglob("*.py"))}
    return {module: imports_of(module, path, paths) for module, path in paths.items()}


def module_of(path):
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(module, path, modules):
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    found = set()
    for node in statements_of(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            # A name is a module itself, or belongs to the module that it comes from.
            found |= {full if (full := f"{source}.{alias.name}") in modules else source for alias in node.names}
    return found & modules.keys()


def statements_of(node):
    """Every statement below the node. Expressions, most of a tree, hold no import."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from statements_of(child)


def find_circle(imports):
    """Modules that import each other in a circle, the first one again at the end; None where there is no circle."""
    done = set()

    def walk(module, path):
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return None
        for other in sorted(imports[module]):
            if circle := walk(other, [*path, module]):
                return circle
        done.add(module)
        return None

    return next(filter(None, (walk(module, []) for module in sorted(imports))), None)


def forbidden_imports(imports):
    """Imports from one folder of gleaner_worker into another that the table does not allow."""
    return [
        f"{module} imports {other}"
        for module, others in sorted(imports.items())
        for other in sorted(others)
        if (folder := folder_of(module)) and (target := folder_of(other)) and target not in {folder} | ALLOWED[folder]
    ]


def folder_of(module):
    package, _, rest = module.partition(".")
    folder = rest.partition(".")[0]
    return folder if package == "gleaner_worker" and folder in ALLOWED else None


def test_no_files_of_the_worker_or_the_reader_import_each_other_in_a_circle():
    assert find_circle(read_imports(WORKER)) is None


def test_folders_of_the_worker_import_only_the_folders_that_the_table_allows():
    assert forbidden_imports(read_imports(WORKER)) == []


def test_the_table_of_folders_has_every_folder_of_the_worker_and_no_circle():
    folders = {entry.name for entry in os.scandir(f"{WORKER}/gleaner_worker") if entry.is_dir()}
    assert folders - {"__pycache__"} == ALLOWED.keys()
    assert find_circle(ALLOWED) is None


def test_only_processes_with_limits_read_the_files_of_outsiders():
    readers = {f"gleaner_worker.{name}" for name in ("records.tokenize_lines", "model.read_files", "model_json")}
    importers = {module.partition(".")[2] for module, others in read_imports(WORKER).items() if others & readers}
    own = {"model.generation_rules", "model.read_files", "records.chat", "records.tokenize_main", "records.tokenizer"}
    assert importers == own  # limited/__main__.py imports read_files and tokenize_main by name


@pytest.fixture
def planted(tmp_path):
    """planted(files) -> the imports of a gleaner_worker that has these files."""

    def plant(files):
        for name, text in files.items():
            path = tmp_path / "gleaner_worker" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return read_imports(tmp_path)

    return plant


CIRCLES = {
    "two files": ({"a.py": "from .b import x", "b.py": "from gleaner_worker import a"}, ["a", "b", "a"]),
    "a file and itself": ({"a.py": "from . import a"}, ["a", "a"]),
    "over three folders": (
        {
            "model/a.py": "from ..shards.b import x",
            "shards/b.py": "import gleaner_worker.records.c",
            "records/c.py": "from ..model import a",
        },
        ["model.a", "shards.b", "records.c", "model.a"],
    ),
    "an import inside a function": (
        {"a.py": "def f():\n    from .b import x", "b.py": "from .a import f"},
        ["a", "b", "a"],
    ),
    "an import for types alone": (
        {"a.py": "if TYPE_CHECKING:\n    from .b import x", "b.py": "from .a import y"},
        ["a", "b", "a"],
    ),
    "no circle": (
        {"a.py": "from .b import x\nfrom .c import y", "b.py": "from .c import y", "c.py": "import json"},
        None,
    ),
}
BETWEEN_FOLDERS = {
    "against the order": ({"model/a.py": "from ..shards import b", "shards/b.py": ""}, ["model.a imports shards.b"]),
    "along the order": ({"shards/b.py": "from ..model.a import x", "model/a.py": ""}, []),
    "within a folder": ({"model/a.py": "from .c import x", "model/c.py": ""}, []),
    "from and to the root": ({"a.py": "from .shards.b import x", "shards/b.py": "from .. import c", "c.py": ""}, []),
}


@pytest.mark.parametrize(("files", "circle"), CIRCLES.values(), ids=CIRCLES)
def test_a_planted_circle_is_found(planted, files, circle):
    assert find_circle(planted(files)) == (circle and [f"gleaner_worker.{module}" for module in circle])


@pytest.mark.parametrize(("files", "forbidden"), BETWEEN_FOLDERS.values(), ids=BETWEEN_FOLDERS)
def test_planted_imports_against_the_order_of_folders_are_found(planted, files, forbidden):
    found = [text.replace("gleaner_worker.", "") for text in forbidden_imports(planted(files))]
    assert found == forbidden
