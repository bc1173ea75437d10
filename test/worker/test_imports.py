"""Which files of the worker may import the readers of outsiders' files. `test/unit/imports.test.ts` checks circles."""

import ast
from pathlib import Path

from environment import WORKER

# They read the files of outsiders, which may be hostile.
READERS = {f"gleaner_worker.{name}" for name in ("records.samples.tokenize_lines", "model.read_files", "model_json")}


def modules_of_worker():
    root = Path(WORKER)
    for path in sorted(root.rglob("gleaner_worker/**/*.py")):
        yield ".".join(path.relative_to(root).with_suffix("").parts), path.read_text()


def imports_of(module, text):
    """Full names of what the module imports, and of the modules that it imports from."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")[: -node.level] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)


def test_only_processes_with_limits_read_the_files_of_outsiders():
    modules = dict(modules_of_worker())
    importers = {name.partition(".")[2] for name, text in modules.items() if READERS & set(imports_of(name, text))}
    # limited/__main__.py imports read_files and tokenize_main by name.
    assert READERS <= modules.keys()
    assert importers == {
        "model.files.generation_rules",
        "model.read_files",
        "records.chat.chat",
        "records.samples.tokenize_main",
        "records.tokens.tokenizer",
    }
