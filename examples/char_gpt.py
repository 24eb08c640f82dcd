"""Train a small character-level GPT on the English that ships with Python, on the device `neuron`.

    python examples/char_gpt.py                          # 300 steps, eager
    python examples/char_gpt.py --compile --amp          # compiled, bfloat16 matrix products
    python examples/char_gpt.py --checkpoint gpt.pt      # saves as it goes; add --resume to go on from there
    python examples/char_gpt.py --compare --steps 50     # CPU, neuron eager and neuron compiled side by side

The text is `pydoc_data.topics`, the language reference behind `help("for")`: 0.7 MB, no download needed.
"""

import argparse
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from pydoc_data.topics import topics

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

TOLERANCE = 1e-3  # how far the losses of two runs of --compare may be apart
console = Console()


@dataclass(frozen=True)
class Shape:
    """The sizes of the model and of a batch."""

    layers: int = 4
    width: int = 128
    heads: int = 4
    context: int = 128
    batch: int = 16


@dataclass(frozen=True)
class Run:
    """Where and how a model is trained, and what came out: one row of the comparison."""

    name: str
    losses: list[float]
    tokens_per_second: float
    first_step_seconds: float


class Block(nn.Module):
    """Causal self-attention, then a two-layer perceptron, each behind a layer norm and a residual."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norm1, self.norm2 = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.qkv, self.out = nn.Linear(shape.width, 3 * shape.width), nn.Linear(shape.width, shape.width)
        self.up, self.down = nn.Linear(shape.width, 4 * shape.width), nn.Linear(4 * shape.width, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, context, width) to the same shape."""
        batch, time_, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, time_, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, time_, width))
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        return x


class CharGPT(nn.Module):
    """Characters in, the logits of each next character out."""

    def __init__(self, vocabulary: int, shape: Shape) -> None:
        super().__init__()
        self.characters = nn.Embedding(vocabulary, shape.width)
        self.positions = nn.Parameter(0.02 * torch.randn(shape.context, shape.width))
        self.blocks = nn.Sequential(*(Block(shape) for _ in range(shape.layers)))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map token ids (batch, context) to logits (batch, context, vocabulary)."""
        logits: Tensor = self.head(self.norm(self.blocks(self.characters(tokens) + self.positions)))
        return logits


class Corpus:
    """The text as token ids. A batch depends on seed and step alone: a resumed run sees what it would have seen."""

    def __init__(self) -> None:
        self.text = "\n".join(topics[name] for name in sorted(topics))
        self.alphabet = sorted(set(self.text))
        index = {character: i for i, character in enumerate(self.alphabet)}
        self.tokens = torch.tensor([index[character] for character in self.text])

    def batch(self, step: int, shape: Shape, seed: int) -> tuple[Tensor, Tensor]:
        """Return the inputs and the targets of one step, on the CPU."""
        generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
        starts = torch.randint(len(self.tokens) - shape.context - 1, (shape.batch, 1), generator=generator)
        rows = self.tokens[starts + torch.arange(shape.context + 1)]
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def new_model(corpus: Corpus, shape: Shape, seed: int, device: str) -> tuple[CharGPT, torch.optim.Optimizer]:
    """Initialise on the CPU, so that every device starts from the same numbers, then move."""
    torch.manual_seed(seed)
    model = CharGPT(len(corpus.alphabet), shape).to(device)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def progress() -> Progress:
    """A bar with the loss and the speed."""
    rate = TextColumn("loss {task.fields[loss]:.3f}  {task.fields[rate]:>9,.0f} tokens/s")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), rate)
    return Progress(*columns, console=console)


def synchronize(device: str) -> None:
    """Wait for queued work: a clock that is read before it has ended measures nothing."""
    if device != "cpu":
        torch.accelerator.synchronize()


def train(args: argparse.Namespace, corpus: Corpus, shape: Shape, device: str, compiled: bool) -> tuple[CharGPT, Run]:
    """Train `args.steps` steps on `device`; saves to and resumes from `args.checkpoint` when asked."""
    model, optimizer = new_model(corpus, shape, args.seed, device)
    name, losses = f"{device} {'compiled' if compiled else 'eager'}", []
    if args.resume:
        saved = torch.load(args.checkpoint, map_location=device, weights_only=True)
        if saved["shape"] != asdict(shape):
            raise SystemExit(f"{args.checkpoint} holds a model of {saved['shape']}, this run asks for {asdict(shape)}")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        losses = saved["losses"]
    forward = torch.compile(model, backend="neuron") if compiled else model

    first_step, clock, counted, start = 0.0, 0.0, 0, len(losses)
    with progress() as bar:
        task = bar.add_task(name, total=args.steps, completed=start, loss=float("nan"), rate=0.0)
        for step in range(start, args.steps):
            began = time.perf_counter()
            inputs, targets = (tokens.to(device) for tokens in corpus.batch(step, shape, args.seed))
            with torch.autocast(device, dtype=torch.bfloat16, enabled=args.amp):
                logits = forward(inputs)
                loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(loss.item())
            synchronize(device)
            elapsed = time.perf_counter() - began
            if step == start:
                first_step = elapsed  # a compiled model compiles here: told apart from the speed it then has
            else:
                clock, counted = clock + elapsed, counted + inputs.numel()
            bar.update(task, advance=1, loss=losses[-1], rate=counted / clock if clock else 0.0)
            if args.checkpoint and ((step + 1) % args.checkpoint_every == 0 or step + 1 == args.steps):
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**state, "losses": losses, "shape": asdict(shape)}, args.checkpoint)
    return model, Run(name, losses, counted / clock if clock else 0.0, first_step)


@torch.no_grad()
def sample(model: CharGPT, corpus: Corpus, shape: Shape, device: str, prompt: str, length: int, seed: int) -> str:
    """Continue `prompt` by `length` characters; the model always sees a full context, so its shape never changes."""
    generator = torch.Generator().manual_seed(seed)
    tokens = [corpus.alphabet.index(character) for character in prompt]
    for _ in range(length):
        window = tokens[-shape.context :]
        padded = torch.tensor([window + [0] * (shape.context - len(window))], device=device)
        probabilities = (model(padded)[0, len(window) - 1].float() / 0.8).softmax(-1).cpu()
        tokens.append(int(torch.multinomial(probabilities, 1, generator=generator)))
    return "".join(corpus.alphabet[token] for token in tokens)


def compare(args: argparse.Namespace, corpus: Corpus, shape: Shape) -> bool:
    """Train the same model on the same data three ways and tell whether the losses agree."""
    ways = [("cpu", False), (args.device, False), (args.device, True)]
    runs = [train(args, corpus, shape, device, compiled)[1] for device, compiled in ways]
    reference = runs[0].losses
    title = f"{args.steps} steps of {shape.batch * shape.context} characters"
    table = Table(title=title, caption=f"losses may differ by {TOLERANCE}")
    for heading in ("run", "first loss", "last loss", "difference", "first step", "tokens/s"):
        table.add_column(heading, justify="left" if heading == "run" else "right", no_wrap=True)
    worst = 0.0
    for run in runs:
        apart = max(abs(a - b) for a, b in zip(run.losses, reference, strict=True))
        worst = max(worst, apart)
        cells = (f"{run.losses[0]:.4f}", f"{run.losses[-1]:.4f}", f"{apart:.1e}", f"{run.first_step_seconds:.1f} s")
        table.add_row(run.name, *cells, f"{run.tokens_per_second:,.0f}")
    console.print(table)
    return worst <= TOLERANCE


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="neuron")
    parser.add_argument("--compile", action="store_true", help='train through torch.compile(backend="neuron")')
    parser.add_argument("--compare", action="store_true", help="CPU, eager, compiled: fails if the losses differ")
    parser.add_argument("--amp", action="store_true", help="mixed precision: autocast to bfloat16")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", type=Path, help="file to save to")
    parser.add_argument("--checkpoint-every", type=int, default=100, metavar="STEPS")
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint")
    parser.add_argument("--sample", type=int, default=200, metavar="CHARACTERS", help="length of the text at the end")
    for field, default in asdict(Shape()).items():
        parser.add_argument(f"--{field}", type=int, default=default)
    args = parser.parse_args(argv)
    if args.resume and not args.checkpoint:
        parser.error("--resume needs --checkpoint FILE")
    if args.compare and args.checkpoint:
        parser.error("--compare trains three models: it takes no --checkpoint")
    return args


def main(argv: list[str] | None = None) -> int:
    """Train, or compare; the exit code is 1 if a comparison fails."""
    args = arguments(argv)
    shape = Shape(**{field: getattr(args, field) for field in asdict(Shape())})
    corpus = Corpus()
    if args.compare:
        return 0 if compare(args, corpus, shape) else 1
    model, run = train(args, corpus, shape, args.device, args.compile)
    if run.losses:
        console.print(f"loss {run.losses[0]:.3f} -> {run.losses[-1]:.3f}, {run.tokens_per_second:,.0f} tokens/s")
    if args.sample:
        console.rule("sample")
        text = sample(model, corpus, shape, args.device, "The ", args.sample, args.seed)
        console.print(text, markup=False, highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
