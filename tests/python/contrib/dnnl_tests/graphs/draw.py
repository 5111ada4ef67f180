# SPDX-License-Identifier: Apache-2.0
"""Drawing graphs at random, step by step: a row chooses its operands and its attributes."""

import math
import random

from .graph import Graph, Step, build

MAX_ELEMENTS = 1 << 14
DIMS = (1, 1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 11, 14, 16, 16, 17, 20, 24, 32)
RANKS = (1, 2, 2, 3, 3, 4, 4, 4, 4, 4, 5, 6)
# Sizes at the edges of what rules tell apart: ones, equal ones, and few others.
EDGE_DIMS = (1, 1, 1, 2, 2, 3, 4, 4, 5, 6, 7)
EDGE_DTYPES = ("bfloat16", "float16", "int8", "uint8", "int32", "bool", "float64")
REAL = ("float32",)
# Types that oneDNN is offered and refuses, or takes in casts only.
ANY = ("float32", "bfloat16", "int32")


class Unfit(Exception):
    """A row finds no operand."""


class Draw:
    """What a row draws with.

    Parameters
    ----------
    seed : int
        The seed of all choices.
    rows : dict of str to Row
        What can be drawn.
    new_inputs : float
        How likely a row gets a new input when it finds no operand.
    edges : bool
        Whether to draw sizes and types that are rare in models, or that TVM has no kernels for.
    """

    def __init__(self, seed, rows, new_inputs=0.25, edges=False):
        self.random = random.Random(seed)
        self.rows = rows
        self.new_inputs = new_inputs
        self.edges = edges
        self.steps = {}
        self.tensors = {}
        self._begun = False

    def choice(self, items):
        """Return one of the items."""
        return self.random.choice(list(items))

    def chance(self, probability):
        """Return True with a probability."""
        return self.random.random() < probability

    def integer(self, low, high):
        """Return an integer between two bounds, both included."""
        return self.random.randint(low, high)

    def shape(self, rank):
        """Return a shape that is not too large."""
        shape = [self.choice(EDGE_DIMS if self.edges else DIMS) for _ in range(rank)]
        if self.edges and self.chance(0.2):
            shape = [self.choice((1, shape[0])) for _ in shape]
        while math.prod(shape) > MAX_ELEMENTS:
            place = shape.index(max(shape))
            shape[place] = (shape[place] + 1) // 2
        return tuple(shape)

    def new_input(self, shape, dtype="float32"):
        """Add an input."""
        return self.add(Step("input", (), {"shape": tuple(shape), "dtype": dtype}))

    def add(self, step):
        """Add a step; return its first result."""
        number = max(self.steps, default=-1) + 1
        for i, tensor in enumerate(build(number, step, self.tensors, self.rows)):
            if math.prod(tensor.shape) > 4 * MAX_ELEMENTS or len(tensor.shape) > 8:
                raise Unfit(f"{step.op} would make {tensor.shape}")
            self.tensors[number, i] = tensor
        self.steps[number] = step
        return number, 0

    def tensor(self, ref):
        """Return the tensor of a result."""
        return self.tensors[ref]

    def data(self, ranks=range(1, 9), dtypes=REAL, where=lambda tensor: True, inputs_only=False):
        """Choose a result as operand, the latest most often; perhaps a new input if none fits."""
        fit = [
            ref
            for ref, tensor in self.tensors.items()
            if tensor.rank in ranks
            and tensor.dtype in dtypes
            and where(tensor)
            and not (inputs_only and self.steps[ref[0]].op != "input")
        ]
        if fit:
            return fit[-1] if self.chance(0.6) else self.choice(fit)
        if not self.chance(self.new_inputs):
            raise Unfit("no operand")
        for _ in range(20):
            shape = self.shape(self.choice([r for r in ranks if r <= 6]))
            is_other = self.edges and self.chance(0.2)
            ref = self.new_input(shape, self.choice(EDGE_DTYPES) if is_other else dtypes[0])
            if where(self.tensors[ref]):
                return ref
            del self.tensors[ref], self.steps[ref[0]]
        raise Unfit("no shape")

    def step(self, row):
        """Add a step of a row, or raise Unfit; steps that it made before it failed are undone."""
        steps, tensors = dict(self.steps), dict(self.tensors)
        try:
            args, attrs = row.draw(self)
            return self.add(Step(row.name, tuple(args), {**attrs, "constant": self.chance(0.8)}))
        # An op that does not accept the attributes that were drawn is not what is looked for.
        except Exception as error:  # pylint: disable=broad-except
            self.steps, self.tensors = steps, tensors
            raise Unfit(str(error)) from error


def random_graph(seed, rows, max_ops=20, edges=False):
    """Draw a graph.

    Parameters
    ----------
    seed : int
        The same seed draws the same graph.
    rows : dict of str to Row
        What can be drawn.
    max_ops : int
        The most steps, inputs left out.
    edges : bool
        As for `Draw`.

    Returns
    -------
    Graph
        With one or more inputs and outputs.
    """
    draw = Draw(seed, rows, edges=edges)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        rank = draw.choice(RANKS)
        draw.new_input(draw.shape(rank), draw.choice(("float32",) * 30 + ("int32",)))
    names = [name for name, row in rows.items() for _ in range(row.weight)]
    size, count = draw.integer(1, max_ops), 0
    for _ in range(4 * size):
        try:
            draw.step(rows[draw.choice(names)])
        except Unfit:
            continue
        count += 1
        if count == size:
            break
    used = {ref for step in draw.steps.values() for ref in step.args}
    results = [ref for ref in draw.tensors if draw.steps[ref[0]].op != "input"] or list(
        draw.tensors
    )
    outputs = [ref for ref in results if ref not in used or draw.chance(0.08)]
    return Graph(draw.steps, outputs)


def single(seed, row, rows, edges=False):
    """Draw a graph of inputs and one step of a row.

    Raises
    ------
    Unfit
        This seed gives none.
    """
    draw = Draw(seed, rows, new_inputs=1.0, edges=edges)
    ref = draw.step(row)
    return Graph(draw.steps, [key for key in draw.tensors if key[0] == ref[0]])
