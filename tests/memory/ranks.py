"""Rank 0 of several, in one process: a process group of PyTorch's own that sends nothing ("fake"), and DDP, FSDP and DeepSpeed as people set
them (sharded.py has the table)."""

import contextlib
import os

import torch

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def kind(job):
    return job["sharding"]["kind"] if "sharding" in job else ""


def begin(job, reads, fake):
    """As torchrun starts a process, before anything asks how many there are."""
    if not kind(job):
        return
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(job["ranks"]), "LOCAL_WORLD_SIZE": str(job["ranks"]), "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": "29500"}
    if kind(job) in ("fsdp1", "fsdp2"):
        os.environ["ACCELERATE_USE_FSDP"] = "true"
    dist.init_process_group("fake", rank=0, world_size=job["ranks"], store=FakeStore())
    if kind(job) in ("fsdp1", "zero"):  # memory that other streams used is free when they are through with it: as if the device kept up with the host
        fake.fake_set_eager_events(1)
    reads.whole_copies = bool(job["sharding"].get("offload")) or kind(job) == "zero"
    remember_what_is_sent(reads, fake)
    gather_rows(dist)


def gather_rows(dist):
    """accelerate gathers tensors of any shape into flat ones, as NCCL does; the process group that sends nothing compares their shapes."""
    plain = dist.all_gather_into_tensor

    def gathered(output_tensor, input_tensor, *args, **kwargs):
        return plain(output_tensor, input_tensor.view(-1) if output_tensor.dim() == 1 else input_tensor, *args, **kwargs)

    dist.all_gather_into_tensor = gathered


def remember_what_is_sent(reads, fake):
    """DDP sends the order of buckets from rank 0 to all and reads it back: what it reads is what it sent. That all ranks have parameters of the
    same sizes, which it looks for first, is taken for granted."""
    import torch.distributed as dist
    import torch.nn.parallel.distributed as module

    rebuild = dist.Reducer._rebuild_buckets

    def remembered(reducer):
        before = fake.fake_host_reads()
        fake.fake_set_remember(1)
        rebuilt = rebuild(reducer)
        fake.fake_set_remember(0)
        reads.count += fake.fake_host_reads() - before
        if rebuilt:
            reads.seen["_rebuild_buckets"] = "as sent"
        return rebuilt

    def nothing_to_do(_, bucket):
        """An all-reduce in place, whose result DDP looks for where the process group that sends nothing has none."""
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    init = module.DistributedDataParallel.__init__

    def with_hook(self, *args, **kwargs):
        init(self, *args, **kwargs)
        self.register_comm_hook(None, nothing_to_do)

    module.DistributedDataParallel.__init__ = with_hook
    module._verify_param_shape_across_processes = lambda *_: None
    dist.Reducer._rebuild_buckets = remembered


def inner(model):
    """The model of transformers, without what peft puts around it."""
    return getattr(getattr(model, "base_model", model), "model", model) if hasattr(model, "peft_config") else model


def blocks(model):
    model = inner(model)
    return model.transformer.h if hasattr(model, "transformer") else model.model.layers


def stays_on_host(job):
    """Sharding takes the weights to the card piece by piece."""
    return kind(job) in ("fsdp1", "fsdp2", "zero")


def wrap(job, model):
    """Of a plain loop."""
    how = job.get("sharding")
    if kind(job) == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model, device_ids=[0], gradient_as_bucket_view=how["view"], find_unused_parameters=how["unused"],
                                                         bucket_cap_mb=how["mb"])
    if kind(job) == "fsdp2":
        return fully_sharded(how, model)
    if kind(job) == "fsdp1":
        return flat(how, model)
    return model


def policy_types(how):
    param, _, reduce = (how["policy"] or "").partition("-")
    return TYPES.get(param), TYPES.get(reduce or param)


def fully_sharded(how, model):
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

    param, reduce = policy_types(how)
    more = {"mp_policy": MixedPrecisionPolicy(param_dtype=param, reduce_dtype=reduce), "offload_policy": CPUOffloadPolicy() if how["offload"] else OffloadPolicy()}
    if not how["reshard"]:
        more["reshard_after_forward"] = False
    for block in blocks(model):
        fully_shard(block, **more)
    return fully_shard(model, **more)


def flat(how, model):
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    param, reduce = policy_types(how)
    return FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({type(blocks(model)[0])}), device_id=torch.cuda.current_device(),
                                    sharding_strategy=ShardingStrategy[how["strategy"].upper()], use_orig_params=True,
                                    mixed_precision=MixedPrecision(param_dtype=param, reduce_dtype=reduce) if param else None)


def accumulating(job, model, last):
    """The context of a micro-step: gradients are exchanged in the last one alone, where the framework has a word for it."""
    if kind(job) in ("ddp", "fsdp1") and not last:
        return model.no_sync()
    if kind(job) == "fsdp2":
        model.set_requires_gradient_sync(last)
    return contextlib.nullcontext()


def trainer_arguments(job, model):
    """What of TrainingArguments says how ranks share."""
    how = job.get("sharding")
    if kind(job) == "ddp":
        return {key: value for key, value in (("ddp_find_unused_parameters", how["unused"]), ("ddp_bucket_cap_mb", how["mb"])) if value is not None}
    if kind(job) == "fsdp2":
        config = {"version": 2, "reshard_after_forward": how["reshard"], "cpu_offload": how["offload"], "transformer_layer_cls_to_wrap": [type(blocks(model)[0]).__name__]}
        if how.get("wrapped"):
            config["activation_checkpointing"] = True
        return {"fsdp": True, "fsdp_config": config}
    if kind(job) == "fsdp1":
        return {"fsdp": True, "fsdp_config": {"version": 1, "reshard_after_forward": how["strategy"], "transformer_layer_cls_to_wrap": [type(blocks(model)[0]).__name__]}}
    if kind(job) == "zero":
        take_ranks_for_granted()
        return {"deepspeed": deepspeed_config(job), "bf16": job["precision"] == "bf16", "fp16": job["precision"] == "fp16"}
    return {}


# ---- DeepSpeed ----

def deepspeed_config(job):
    """The configuration that the documentation of transformers gives, its "auto" values filled in as the Trainer does it."""
    how = job["sharding"]
    zero = {"stage": how["stage"]}
    if how["bucket"]:
        zero |= {"reduce_bucket_size": how["bucket"], "allgather_bucket_size": how["bucket"]}
    if how["stage"] == 3 and how["bucket"]:
        zero["stage3_prefetch_bucket_size"] = how["bucket"] // 10
    if how["offload"]:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if how["offload"] == "all":
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    return {"train_micro_batch_size_per_gpu": job["batch"], "gradient_accumulation_steps": job["accumulation"], "gradient_clipping": job["clip"] or 0.0,
            "zero_optimization": zero, "bf16": {"enabled": job["precision"] == "bf16"}, "fp16": {"enabled": job["precision"] == "fp16"}, "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False}


def take_ranks_for_granted():
    """That all ranks run the same modules, which stage 3 compares."""
    from deepspeed.runtime.zero import partitioned_param_coordinator

    partitioned_param_coordinator.assert_ints_same_as_other_ranks = lambda *_: None


def deepspeed_loop(job, phases, build, rows, optimizer_for, steps):
    import deepspeed

    take_ranks_for_granted()
    phases.begin("load")
    model = build(job)
    model.train()
    engine, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=optimizer_for(job, model.parameters()), config=deepspeed_config(job))
    outputs = None
    for step in range(1, steps + 1):
        phases.step = step
        for _ in range(job["accumulation"]):
            phases.begin("forward")
            inputs = rows(job, "cuda")
            outputs = engine(**inputs)
            phases.begin("backward")
            engine.backward(outputs.loss)
            phases.begin("optimizer")
            engine.step()
            phases.end()
    del outputs
    return model, optimizer.optimizer
