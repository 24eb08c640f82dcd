"""Statements that only move elements: views, joins, splits, and indexing."""

from .builder import Builder


def view(build: Builder) -> None:
    x = build.pick(lambda value: value.rank > 0)
    if x is None:
        return
    rank, axis = x.rank, build.axis(x)
    extent = x.shape[axis]
    other = build.axis(x)
    start = build.number(0, max(extent - 1, 0))
    step = build.number(2, 3)
    choices = [
        f"{x.name}.transpose({axis}, {other})",
        f"{x.name}.flatten()",
        f"{x.name}.unsqueeze({axis})",
        f"{x.name}.flip({axis})",
        f"{x.name}.roll(1, {axis})",
        f"{x.name}.reshape(-1)",
        f"{x.name}[None]",
        f"torch.narrow({x.name}, {axis}, {start}, {extent - start})",
        f"{x.name}.movedim({axis}, {other})",
        f"{x.name}.repeat_interleave(2, {axis})",
        f"{x.name}[..., ::2]",
        f"{x.name}.squeeze({axis})",
        f"{x.name}.unfold({axis}, 1, 1)",
        f"{x.name}.contiguous()",
        f"{x.name}.clone()",
        f"{x.name}[1:]",
        f"{x.name}.unfold({axis}, {min(extent, 2)}, {step - 1})",
        f"{x.name}[{start % max(x.shape[0], 1)}:]",
        f"{x.name}[-2::{step}]",
        f"{x.name}[..., None, 0]",
        f"{x.name}.expand(2, *{x.name}.shape)",
        f"{x.name}.repeat({', '.join(['2', *['1'] * (rank - 1)])})",
        f"{x.name}.tile((2,))",
        f"{x.name}.permute({', '.join(map(str, range(rank)[::-1]))})",
        f"{x.name}.chunk(2, {axis})[-1]",
        f"{x.name}.split({step}, {axis})[0]",
        f"torch.tensor_split({x.name}, 3, {axis})[1]",
        f"{x.name}.ravel()",
        f"{x.name}.detach()",
        f"{x.name}.view({x.name}.shape)",
        f"torch.atleast_2d({x.name})",
        f"{x.name}.squeeze()",
        f"{x.name}.swapaxes({axis}, {other})",
        f"torch.broadcast_to({x.name}, (3, *{x.name}.shape))",
    ]
    if extent:
        choices += [f"{x.name}.select({axis}, {start})", f"{x.name}.unbind({axis})[-1]", f"{x.name}[..., -1:]"]
    if rank >= 2:
        choices += [
            f"{x.name}.mT",
            f"{x.name}.tril()",
            f"{x.name}.triu(1)",
            f"{x.name}.diagonal(0, -2, -1)",
            f"{x.name}.diagonal(1, -2, -1)",
            f"{x.name}.tril(-1)",
            f"{x.name}.flatten(-2)",
            f"{x.name}.rot90()",
            f"{x.name}.flip(0, 1)",
            f"{x.name}.roll((1, -1), (0, 1))",
            f"{x.name}.unflatten(0, (1, -1))",
        ]
    if rank == 1:
        choices += [f"{x.name}.diag()", f"torch.diag_embed({x.name})", f"{x.name}.diagflat(1)"]
    if rank <= 3 and not x.boolean:
        choices += [f"F.pad({x.name}, (1, 2), value=1)", f"F.pad({x.name}, (-1, 1))"]
    if 2 <= rank <= 3 and x.floating:
        mode = build.one("reflect", "replicate", "circular")
        choices += [f"F.pad({x.name}, (1, 1), mode='{mode}')"]
    build.add(build.one(*choices), exact=x.exact)


def join(build: Builder) -> None:
    x = build.pick()
    assert x is not None
    y = build.pick(lambda value: value.shape == x.shape)
    assert y is not None
    forms = ["torch.stack(({x}, {y}), {d})"]
    if x.rank:
        forms += [
            "torch.cat(({x}, {y}), {d})",
            "torch.cat(({y}, {x}, {y}), {d})",
            "torch.cat(({x}, {x}[:0]), 0)",
            "torch.hstack(({x}, {y}))",
            "torch.vstack(({x}, {y}))",
            "torch.cat(({x}[1:], {y}), 0)",
        ]
    build.add(build.one(*forms).format(x=x.name, y=y.name, d=build.axis(x)), exact=x.exact and y.exact)


def index(build: Builder) -> None:
    x = build.pick(lambda value: value.rank > 0 and value.shape[0] > 0)
    chosen = build.pick(lambda value: not value.floating and not value.boolean and value.exact)
    if x is None or chosen is None:
        return
    n, axis = x.shape[0], build.axis(x)
    form = build.one(
        "{x}[{i}]",
        "{x}.index_select(0, {i}.flatten())",
        "{x}.take({i} % max({x}.numel(), 1))",
        "{x}[{i} - {n}]",
        "{x}[{i}, ..., None]",
        "{x}[..., {j}]",
        "{x}[None, {i}]",
        "{x}[{i}, {j}]",
        "{x}[:, {j}]",
        "F.embedding({i}, {x})",
        "torch.index_select({x}, {d}, ({c} % {m}).flatten())",
        "{x}[{i}, 0]",
        "{x}[{i}, :, {j}]",
        "F.one_hot({i}, {n})",
        "torch.take_along_dim({x}, {i}.reshape(-1, *[1] * ({x}.dim() - 1)), 0)",
    )
    text = form.format(
        x=x.name,
        i=f"({chosen.name} % {n})",
        n=n,
        j=f"({chosen.name} % {max(x.shape[-1], 1)})",
        d=axis,
        c=chosen.name,
        m=max(x.shape[axis], 1),
    )
    build.add(text, exact=x.exact)


def gather(build: Builder) -> None:
    x = build.pick(lambda value: value.rank > 0 and value.example.numel() > 0)
    if x is None:
        return
    chosen = build.pick(
        lambda value: value.shape == x.shape and not value.floating and not value.boolean and value.exact
    )
    axis = build.axis(x)
    indices = (
        f"({chosen.name} % {x.shape[axis]}).long()"
        if chosen is not None
        else f"(torch.arange({x.example.numel()}, device={x.name}.device) * 5 % {x.shape[axis]}).view({x.name}.shape)"
    )
    y = build.pick(lambda value: value.shape == x.shape and value.dtype == x.dtype)
    assert y is not None
    row = f"torch.arange({x.shape[axis]}, device={x.name}.device).flip(0)"
    form = build.one(
        "{x}.gather({d}, {i})",
        "{x}.scatter_add({d}, {i}, {y})",
        "{x}.scatter({d}, {i}, 1)",
        "{x}.index_add({d}, {r}, {y})",
        "{x}.index_copy({d}, {r}, {y})",
        "{x}.index_fill({d}, {r}[:1], 2)",
        "{x}.scatter_reduce({d}, {i}, {y}, 'amax')",
        "{x}.index_put(({r0},), {y})",
        "{x}.scatter_reduce({d}, {i}, {y}, 'sum')",
        "{x}.index_put(({r0} // 2,), {y}, accumulate=True)",
        "{x}.select_scatter({y}.select({d}, 0), {d}, -1)",
        "{x}.slice_scatter({y}[1:], 0, 1)",
        "{x}.masked_scatter({x} == {x}, {y})",
    )
    if "masked" in form and not x.exact:
        return
    adds = any(word in form for word in ("add", "sum", "accumulate"))
    row0 = f"torch.arange({x.shape[0]}, device={x.name}.device)"
    text = form.format(x=x.name, y=y.name, i=indices, d=axis, r=row, r0=row0)
    build.add(text, exact=x.exact and y.exact and not (adds and x.floating))


FAMILIES = (view, view, view, join, index, gather)
