"""Pipeline: the plan as a graph: checked, ordered, asked about, drawn. Tasks in; tasks in order, text out.

networkx is loaded only here; a settled request (``settled``) needs no plan and no networkx.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from npubake.errors import Fault, RecipeError
from npubake.pipeline.task import Input, Literal, Output, SourceFile, Task, merge

if TYPE_CHECKING:
    import networkx


def plan(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """Merge equal tasks, check every edge, and put the tasks in topological order (the same for the same tasks).

    Raises RecipeError with all faults: unknown producers and ports, types that do not fit, missing and superfluous
    inputs, cycles, files published by two tasks.
    """
    import networkx

    merged = merge(tasks)
    by_id = {task.id: task for task in merged}
    faults = [fault for task in merged for fault in _task_faults(task, by_id)]
    faults += _publish_faults(merged)
    if faults:
        raise RecipeError(*faults)
    graph = _graph(merged)
    place = {task.id: number for number, task in enumerate(merged)}
    try:
        order = list(networkx.lexicographical_topological_sort(graph, key=place.__getitem__))
    except networkx.NetworkXUnfeasible as error:
        cycle = [edge[0] for edge in networkx.find_cycle(graph)]
        raise RecipeError(Fault(what=f"tasks wait for each other: {' → '.join([*cycle, cycle[0]])}")) from error
    return tuple(by_id[name] for name in order)


def needed_for(tasks: Iterable[Task], wanted: Iterable[str]) -> tuple[Task, ...]:
    """The tasks that must be done for those with the ids ``wanted``, themselves included, in the order given."""
    tasks = tuple(tasks)
    by_id = {task.id: task for task in tasks}
    needed: set[str] = set()
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += by_id[name].predecessors()
    return tuple(task for task in tasks if task.id in needed)


def to_dot(tasks: Iterable[Task]) -> str:
    """The plan for Graphviz; dashed edges are order alone."""
    lines = ["digraph plan {", "  rankdir=LR;", '  node [shape=box, fontname="sans-serif"];']
    for task in tasks:
        lines.append(f'  "{task.id}" [label="{_escaped(task.name)}"];')
        lines += [f'  "{name}" -> "{task.id}"{"" if data else " [style=dashed]"};' for name, data in _edges(task)]
    return "\n".join([*lines, "}", ""])


def to_mermaid(tasks: Iterable[Task]) -> str:
    """The plan for Mermaid; dotted edges are order alone."""
    lines = ["flowchart LR"]
    for task in tasks:
        lines.append(f'  {task.id}["{_escaped(task.name)}"]')
        lines += [f"  {name} {'-->' if data else '-.->'} {task.id}" for name, data in _edges(task)]
    return "\n".join([*lines, ""])


def _graph(tasks: tuple[Task, ...]) -> networkx.DiGraph[str]:
    import networkx

    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_nodes_from(task.id for task in tasks)
    graph.add_edges_from((name, task.id) for task in tasks for name in task.predecessors())
    return graph


def _edges(task: Task) -> list[tuple[str, bool]]:
    """(predecessor, whether bytes flow)."""
    makers = {item.task for items in task.inputs.values() for item in items if isinstance(item, Output)}
    return [(name, name in makers) for name in task.predecessors()]


def _task_faults(task: Task, by_id: Mapping[str, Task]) -> list[Fault]:
    found = [f"waits for {name!r}, which is not in the plan" for name in task.after if name not in by_id]
    found += [f"has no input port {port!r}" for port in task.inputs if port not in task.stage.inputs]
    for port, declared in task.stage.inputs.items():
        items = task.inputs.get(port, ())
        kind, least, most = _arity(declared)
        if not least <= len(items) <= most:
            found.append(f"input {port!r} takes {declared!r}, found {len(items)} artifacts")
        found += [said for item in items if (said := _type_fault(item, port, kind, by_id))]
    found += [
        f"publishes {item.port!r}, which it does not make"
        for item in task.publish
        if item.port not in task.stage.outputs
    ]
    return [Fault(what=f"task {task.name!r} {said}", where=task.id) for said in found]


def _type_fault(item: Input, port: str, wanted: str, by_id: Mapping[str, Task]) -> str:
    match item:
        case SourceFile():
            kind = "file"
        case Literal(type=kind):
            pass
        case Output(task=maker, port=made):
            if maker not in by_id:
                return f"input {port!r} comes from {maker!r}, which is not in the plan"
            outputs = by_id[maker].stage.outputs
            if made not in outputs:
                return f"input {port!r} comes from {made!r} of {maker!r}, which it does not make"
            kind = outputs[made]
    return "" if kind == wanted else f"input {port!r} takes {wanted!r}, found {kind!r}"


def _arity(declared: str) -> tuple[str, int, float]:
    if declared.endswith("*"):
        return declared[:-1], 0, float("inf")
    return (declared[:-1], 0, 1) if declared.endswith("?") else (declared, 1, 1)


def _publish_faults(tasks: tuple[Task, ...]) -> list[Fault]:
    makers: dict[str, str] = {}
    faults = []
    for task in tasks:
        for item in task.publish:
            source = f"{task.id} {item.port}"
            if makers.setdefault(item.path, source) != source:
                faults.append(Fault(what=f"made by {makers[item.path]} and by {source}", where=item.path))
    return faults


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
