"""Adds the counting of sandbox.py to a parsed template wherever Jinja has no hook for it.

Loops count each round and the text that a round writes; joining with ~, comparing, slicing and making containers become
calls of the sandbox's own methods.
"""

from collections.abc import Iterator

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.visitor import NodeTransformer


def add_counting(template: nodes.Template) -> nodes.Template:
    return _Metering().visit(template)


class _Metering(NodeTransformer):
    def visit_For(self, node: nodes.For) -> nodes.For:
        written = sum(len(text) for statement in node.body for text in _literals(statement))
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_ask("step", node, [nodes.Const(written)]), lineno=node.lineno))
        if node.test is not None:
            node.test = nodes.And(_ask("step", node, []), node.test, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:
        self.generic_visit(node)
        return _ask("concat_values", node, node.nodes)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:
        self.generic_visit(node)
        node.expr = _weighed(node.expr)
        for operand in node.ops:
            operand.expr = _weighed(operand.expr)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:
        self.generic_visit(node)
        return _weighed(node) if isinstance(node.arg, nodes.Slice) else node

    def visit_List(self, node: nodes.List | nodes.Tuple) -> nodes.Expr:
        self.generic_visit(node)
        return node if all(isinstance(item, nodes.Const) for item in node.items) else _weighed(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:
        return self.visit_List(node) if node.ctx == "load" else node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:
        self.generic_visit(node)
        return _weighed(node)

    def visit_ScopedEvalContextModifier(self, node: nodes.Node) -> nodes.Node:
        raise SecurityError("{% autoescape %} is for HTML; take it out")


def _ask(method: str, node: nodes.Node, args: list[nodes.Expr]) -> nodes.Call:
    attribute = nodes.EnvironmentAttribute(method, lineno=node.lineno)
    return nodes.Call(attribute, args, [], None, None, lineno=node.lineno)


def _weighed(node: nodes.Expr) -> nodes.Expr:
    return node if isinstance(node, nodes.Const) else _ask("weigh", node, [node])


def _literals(node: nodes.Node) -> Iterator[str]:
    """The strings of the template itself; an inner loop counts its own strings."""
    if isinstance(node, nodes.TemplateData):
        yield node.data
    elif isinstance(node, nodes.Const) and isinstance(node.value, str):
        yield node.value
    if not isinstance(node, nodes.For):
        for child in node.iter_child_nodes():
            yield from _literals(child)
