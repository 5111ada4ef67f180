# SPDX-License-Identifier: Apache-2.0
"""Making a graph that fails smaller.

Not with hypothesis: its draws and its shrinker run in the process of the test, where a graph that
ends TVM ends the run, and the seed of one graph out of many would not draw that graph again.
"""

import time

from dnnl_tests.isolated import isolated_each

from .graph import Graph, Step
from .rows import ROWS


def _outputs(graph):
    """Yield the graph with a single output: one of its own, or the result of any step."""
    refs = graph.outputs if len(graph.outputs) > 1 else []
    inner = [(number, 0) for number, step in graph.steps.items() if step.op != "input"]
    for ref in [*refs, *inner]:
        if [ref] != graph.outputs:
            yield Graph(graph.steps, [ref])


def _without(graph, number, instead):
    """Return the graph with other results in the place of those of a step."""
    steps = {
        other: step._replace(args=tuple(instead if r[0] == number else r for r in step.args))
        for other, step in graph.steps.items()
        if other != number
    }
    return Graph(steps, [instead if ref[0] == number else ref for ref in graph.outputs])


def _fewer_steps(graph, types):
    """Yield the graph with an input in the place of a step, or without the step.

    `types` has the shape and the dtype of each result, by Ref.
    """
    for number, step in reversed(graph.steps.items()):
        if step.op == "input":
            continue
        if (number, 0) in types and (number, 1) not in types:
            shape, dtype = types[number, 0]
            new = Step("input", (), {"shape": shape, "dtype": dtype})
            yield Graph({**graph.steps, number: new}, graph.outputs)
        for ref in step.args:
            yield _without(graph, number, ref)


def _smaller(value):
    """Yield simpler values of an attribute."""
    if isinstance(value, bool):
        if value:
            yield False
    elif isinstance(value, int):
        yield from dict.fromkeys(n for n in (1, 0, value // 2, value - 1) if 0 <= n < value)
    elif isinstance(value, tuple):
        for place, item in enumerate(value):
            for new in _smaller(item):
                yield (*value[:place], new, *value[place + 1 :])


def _smaller_numbers(graph):
    """Yield the graph with a smaller dimension or attribute."""
    for number, step in graph.steps.items():
        for name, value in step.attrs.items():
            for new in _smaller(value):
                changed = step._replace(attrs={**step.attrs, name: new})
                yield Graph({**graph.steps, number: changed}, graph.outputs)


def _types(graph):
    """Return the shape and the dtype of each result, by Ref."""
    return {ref: (tensor.shape, tensor.dtype) for ref, tensor in graph.tensors(ROWS).items()}


def _candidates(graph):
    yield from _outputs(graph)
    # In a process of its own, as all that TVM makes of a graph: a graph may end the process.
    (types,) = isolated_each(_types, [(graph,)])
    yield from _fewer_steps(graph, types if isinstance(types, dict) else {})
    yield from _smaller_numbers(graph)


def _builds(graph):
    """Whether a graph has a step and TVM accepts it; TVM may as well end the process."""
    if all(ref[0] not in graph.steps or graph.steps[ref[0]].op == "input" for ref in graph.outputs):
        return False
    try:
        graph.module(ROWS)
    # A smaller number need not make sense.
    except Exception:  # pylint: disable=broad-except
        return False
    return True


def _that_build(graph):
    """Yield the candidates of a graph that TVM accepts."""
    candidates = list(_candidates(graph))
    answers = isolated_each(_builds, [(candidate,) for candidate in candidates])
    # A process that ended, or an exception, is no True.
    yield from (candidate for candidate, answer in zip(candidates, answers) if answer is True)


def shrink(graph, fails, seconds=120.0):
    """Make a graph smaller as long as it fails.

    Parameters
    ----------
    graph : Graph
        One that fails.
    fails : callable
        Tells whether a graph fails.
    seconds : float
        After so many no further graph is tried.

    Returns
    -------
    Graph
        The smallest that was found.
    """
    end = time.monotonic() + seconds
    progress = True
    while progress:
        progress = False
        for candidate in _that_build(graph):
            if time.monotonic() > end:
                return graph
            if fails(candidate):
                graph, progress = candidate, True
                break
    return graph
