"""Statements that write: into results, views of them, and arguments."""

from .builder import Builder


def write(build: Builder) -> None:
    x = build.pick()
    y = build.pick()
    assert x is not None
    assert y is not None
    forms = [f"{x.name}.zero_()", f"{x.name}.fill_(1)", f"{x.name}.copy_({y.name})", f"{x.name}[...] = {y.name}"]
    if not x.boolean:
        forms += [
            f"{x.name}.mul_(2)",
            f"{x.name}.add_(1)",
            f"{x.name}.clamp_(-1, 1)",
            f"{x.name}.neg_()",
            f"{x.name}.abs_()",
            f"{x.name}.add_({y.name})",
            f"{x.name} += 1",
            f"{x.name} *= {y.name}",
            f"{x.name}.sub_({y.name}, alpha=2)",
            f"{x.name}.relu_()",
            f"F.relu({x.name}, inplace=True)",
        ]
    else:
        forms += [f"{x.name}.logical_not_()", f"{x.name}.logical_or_({y.name})", f"{x.name} &= {y.name}"]
    if x.floating:
        forms += [f"{x.name}.sigmoid_()", f"{x.name}.div_(3)", f"{x.name}.tanh_()", f"{x.name}.lerp_({y.name}, 0.5)"]
    if x.rank:
        axis = build.axis(x)
        forms += [
            f"{x.name}[0] = 2",
            f"{x.name}[..., ::2] = 0",
            f"{x.name}[1:] = {x.name}[:-1].clone()",
            f"{x.name}[..., -1].fill_(1)",
            f"{x.name}.select({axis}, 0).zero_()",
            f"{x.name}.transpose({axis}, -1).copy_({y.name})",
            f"{x.name}[:, 0] = {y.name}",
            f"{x.name}[None].fill_(0)",
            f"{x.name}.view(-1)[::2].zero_()",
            f"{x.name}.index_fill_({axis}, torch.tensor([0], device={x.name}.device), 1)",
        ]
        if not x.boolean:
            forms += [
                f"{x.name}[..., 1:] += 1",
                f"{x.name}.select({axis}, -1).mul_(2)",
                f"{x.name}.unsqueeze(0).add_(1)",
                f"{x.name}.narrow({axis}, 0, 1).neg_()",
            ]
    mask = build.pick(lambda value: value.boolean and value.exact and value.shape == x.shape)
    if mask is not None:
        forms += [f"{x.name}.masked_fill_({mask.name}, 1)", f"{x.name}[{mask.name}] = 0"]
    statement = build.one(*forms)
    takes = y.name if y.name != x.name and y.name in statement.replace(x.name, "", 1) else None
    keeps = any(word in statement for word in ("zero_", "fill", "copy_", "neg_", "abs_", "relu", "clamp_", " = "))
    exact = (keeps or not x.floating) and (takes is None or y.exact)
    # Rounding to another dtype is exact; to whole numbers it jumps.
    if takes is not None and not x.floating and y.floating and not (y.exact and y.whole):
        return
    build.write(statement, x, exact=exact)


def copy_and_write(build: Builder) -> None:
    x = build.pick()
    assert x is not None
    before = len(build.values)
    build.add(f"{x.name}.clone()", exact=x.exact)
    if len(build.values) > before:
        write(build)


FAMILIES = (write, write, copy_and_write)
