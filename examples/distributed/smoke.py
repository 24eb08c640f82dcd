"""Does every rank reach every other? Adds up rank + 1 over all of them."""

import torch
import torch.distributed as dist


def main() -> None:
    """Reduce one tensor and check the sum."""
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = torch.full((4,), rank + 1.0, device=torch.device("neuron"))
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    expected = size * (size + 1) / 2
    if tensor.tolist() != [expected] * 4:
        raise SystemExit(f"rank {rank}: the sum over {size} ranks is {tensor.tolist()} instead of {expected}")
    print(f"rank {rank}: the sum over {size} ranks is {expected:g}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("neuron")
    try:
        main()
    finally:
        dist.destroy_process_group()
