# SPDX-License-Identifier: Apache-2.0
"""Relay modules with everything that Relay has, for the tests of the partitioner."""

import numpy as np
import tvm
from tvm import relay, te
from tvm.contrib.onednn import cpu
from tvm.relay.prelude import Prelude

from dnnl_tests.reference import rand
from dnnl_tests.relay import conv, module, var

SHAPE = (1, 8, 6, 6)
X = var("x", *SHAPE)
TENSOR = relay.TensorType(SHAPE)
relu, atan = relay.nn.relu, relay.atan


def func(body, *params):
    return tvm.IRModule.from_expr(relay.Function(list(params) or [X], body))


def let():
    y = relay.var("y")
    return func(relay.Let(y, relu(conv(X)), relay.add(conv(y), y)))


def a_normal_form():
    mod = module(relay.add(relu(conv(X)), conv(X, seed=1)))
    return relay.transform.ToANormalForm()(mod)


def references():
    ref, done = relay.var("ref"), relay.var("done")
    body = relay.Let(done, relay.RefWrite(ref, conv(conv(X))), relu(relay.RefRead(ref)))
    return func(relay.Let(ref, relay.RefCreate(conv(X, seed=1)), body))


def closure():
    y, f = var("y", *SHAPE), relay.var("f")
    call = relay.Call(f, [relay.Call(f, [conv(X)])])
    return func(relay.Let(f, relay.Function([y], relu(conv(y))), call))


def closure_with_free_variables():
    y, z = var("y", *SHAPE), conv(X)
    inner = relay.Function([y], relay.add(z, conv(y)))
    return func(conv(relay.Call(inner, [relay.add(X, z)])))


def branches():
    cond, z = var("c", dtype="bool"), conv(X)
    body = relay.If(cond, relu(conv(z)), relay.add(relu(z), z))
    return func(conv(body), X, cond)


def loop():
    """A function that calls itself, as importers write loops."""
    mod, name = tvm.IRModule(), relay.GlobalVar("loop")
    n, x = var("n", dtype="int32"), var("x", *SHAPE)
    again = name(n - relay.const(1), relu(conv(x, seed=1)))
    mod[name] = relay.Function([n, x], relay.If(relay.equal(n, relay.const(0)), x, again), TENSOR)
    m, y = var("c", dtype="int32"), var("x", *SHAPE)
    mod["main"] = relay.Function([y, m], conv(name(m, conv(y))))
    return mod


def recursive_closure():
    n, y, f = var("n", dtype="int32"), var("y", *SHAPE), relay.var("f")
    again = relay.Call(f, [n - relay.const(1), relu(conv(y))])
    inner = relay.Function([n, y], relay.If(relay.equal(n, relay.const(0)), y, again), TENSOR)
    return func(relay.Let(f, inner, relay.Call(f, [relay.const(2), conv(X)])))


def prelude():
    mod = tvm.IRModule()
    lists, y = Prelude(mod), var("y", *SHAPE)
    _, cons, nil = mod.get_type("List")
    mapped = lists.map(relay.Function([y], relu(conv(y))), cons(conv(X), nil()))
    mod["main"] = relay.Function([X], lists.hd(mapped))
    return mod


def match():
    mod, type_, of = tvm.IRModule(), relay.GlobalTypeVar("Maybe"), relay.TypeVar("of")
    some, none = relay.Constructor("Some", [of], type_), relay.Constructor("None", [], type_)
    mod[type_] = relay.TypeData(type_, [of], [some, none])
    value = relay.var("value")
    clauses = [
        relay.Clause(relay.PatternConstructor(some, [relay.PatternVar(value)]), relu(conv(value))),
        relay.Clause(relay.PatternConstructor(none, []), conv(X, seed=1)),
    ]
    mod["main"] = relay.Function([X], relay.Match(some(conv(X)), clauses))
    return mod


def several_functions():
    mod, name = tvm.IRModule(), relay.GlobalVar("g")
    mod[name] = relay.Function([X], relu(conv(X)))
    y = var("x", *SHAPE)
    mod = relay.transform.InferType()(mod)
    mod["main"] = relay.Function([y], conv(name(conv(y))))
    return mod


def polymorphic():
    mod, name, type_ = tvm.IRModule(), relay.GlobalVar("same"), relay.TypeVar("a")
    value = relay.var("value", type_)
    mod[name] = relay.Function([value], value, type_, [type_])
    mod["main"] = relay.Function([X], conv(relay.Call(name, [conv(X)])))
    return mod


def tir_function():
    mod = module(relu(conv(X)))
    a = te.placeholder((4,), name="a")
    mod["prim"] = te.create_prim_func([a, te.compute((4,), lambda i: a[i] + 1.0)])
    return mod


def split_and_concatenate():
    first, second = relay.split(conv(X), 2, 1)
    return module(conv(relay.concatenate([relu(first), second], 1)))


def batch_norm_results():
    stats = [relay.const(np.abs(rand(8, seed=i)) + 0.1) for i in range(4)]
    bn = relay.nn.batch_norm(relu(conv(X)), *stats)
    return module(bn[0], bn[1], conv(bn[0]), relay.Tuple([atan(bn[0])]))


def batch_norm_tuple():
    stats = [relay.const(np.abs(rand(8, seed=i)) + 0.1) for i in range(4)]
    return module(relay.nn.batch_norm(relu(conv(X)), *stats).astuple())


def nested_tuples():
    a, b = conv(X), relu(conv(X, seed=1))
    return module(a, relay.Tuple([b, relay.Tuple([a])]), relay.Tuple([]), b)


def tuple_parameter():
    pair = relay.var("pair", relay.TupleType([TENSOR, TENSOR]))
    fields = [relay.TupleGetItem(pair, i) for i in range(2)]
    return module(conv(fields[0]), relu(conv(fields[1])))


# By name: a module, and the calls that must be offloaded.
MODULES = {
    "let": (let, 4),
    "a-normal-form": (a_normal_form, 4),
    "references": (references, 4),
    "closure": (closure, 3),
    "closure-with-free-variables": (closure_with_free_variables, 5),
    "branches": (branches, 6),
    "loop": (loop, 4),
    "recursive-closure": (recursive_closure, 3),
    # The prelude has six expand_dims and twelve takes for each data type; what it concatenates may
    # be empty.
    "prelude": (prelude, 3 + 18 * (3 + cpu.computes("float16"))),
    "match": (match, 4),
    "several-functions": (several_functions, 4),
    "polymorphic": (polymorphic, 2),
    "tir-function": (tir_function, 2),
    "split-and-concatenate": (split_and_concatenate, 5),
    "batch-norm-results": (batch_norm_results, 5),
    "batch-norm-tuple": (batch_norm_tuple, 3),
    "nested-tuples": (nested_tuples, 3),
    "tuple-parameter": (tuple_parameter, 3),
    "identity": (lambda: module(X), 0),
    "constant": (lambda: func(relay.const(1.0), X), 0),
    "nothing-for-onednn": (lambda: module(relay.sinh(X)), 0),
    "constant-condition": (lambda: func(relay.If(relay.const(True), conv(X), X)), 1),
}
