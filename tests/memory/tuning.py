"""Fine-tuning by torchtune's own recipes for one device (recipes/full_finetune_single_device.py, lora_finetune_single_device.py), three steps of it.

The recipe's class runs as it is: its setup, its loop, its data loader and collate function. Its configuration names the stand-ins below for what would be
read from files: a checkpoint of pages that nobody has touched, rows of one token, a logger that writes nothing. What is wrapped only says where a phase
begins."""

import importlib.util
import os
import types

import torch

STEPS = 3

# Component builders of torchtune.models, and the sizes that its model builders give them.
MODELS = {
    "llama3-1b": ("llama3_2", dict(vocab_size=128256, num_layers=16, num_heads=32, num_kv_heads=8, embed_dim=2048, max_seq_len=131072,
                                   intermediate_dim=8192, rope_base=500_000, scale_factor=32)),
    "llama3-8b": ("llama3", dict(vocab_size=128256, num_layers=32, num_heads=32, num_kv_heads=8, embed_dim=4096, max_seq_len=8192,
                                 intermediate_dim=14336, rope_base=500_000)),
    "llama3.1-8b": ("llama3_1", dict(vocab_size=128256, num_layers=32, num_heads=32, num_kv_heads=8, embed_dim=4096, max_seq_len=131072,
                                     intermediate_dim=14336, rope_base=500_000)),
    "llama2-7b": ("llama2", dict(vocab_size=32000, num_layers=32, num_heads=32, num_kv_heads=32, embed_dim=4096, max_seq_len=4096)),
    "mistral-7b": ("mistral", dict(vocab_size=32000, num_layers=32, num_heads=32, num_kv_heads=8, embed_dim=4096, max_seq_len=32768,
                                   intermediate_dim=14336)),
    "qwen2.5-0.5b": ("qwen2", dict(vocab_size=151936, num_layers=24, num_heads=14, num_kv_heads=2, embed_dim=896, max_seq_len=32768,
                                   intermediate_dim=4864, rope_base=1_000_000.0, tie_word_embeddings=True)),
    "qwen2.5-7b": ("qwen2", dict(vocab_size=152064, num_layers=28, num_heads=28, num_kv_heads=4, embed_dim=3584, max_seq_len=131072,
                                 intermediate_dim=18944, rope_base=1_000_000.0)),
    "phi3-mini": ("phi3", dict(vocab_size=32064, num_layers=32, num_heads=32, num_kv_heads=32, embed_dim=3072, max_seq_len=4096,
                               intermediate_dim=8192)),
    "gemma2-2b": ("gemma2", dict(vocab_size=256000, num_layers=26, num_heads=8, head_dim=256, num_kv_heads=4, embed_dim=2304, max_seq_len=8192,
                                 intermediate_dim=9216, hidden_capping_value=30.0, final_capping_value=50.0, sliding_window_size=4096)),
    "gemma-2b": ("gemma", dict(vocab_size=256000, num_layers=18, num_heads=8, head_dim=256, num_kv_heads=1, embed_dim=2048, max_seq_len=8192,
                               intermediate_dim=16384)),
}
SCALED = ("llama3_1", "llama3_2")  # whose rotary embedding reads each of its frequencies from the device when it is made

OPTIMIZERS = {"adamw": "torch.optim.AdamW", "sgd": "torch.optim.SGD", "adamw8bit": "bitsandbytes.optim.AdamW8bit",
              "paged-adamw8bit": "bitsandbytes.optim.PagedAdamW8bit"}
state = {}  # what stand-ins know of the job: configurations hold no objects


class Tokenizer:
    pad_id = 0


class Rows(torch.utils.data.Dataset):
    """Rows of one length; packed: of two documents each, as PackedDataset gives them."""

    def __init__(self, tokenizer, tokens, count, packed=False):
        self.tokens, self.count, self.packed = tokens, count, packed

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if not self.packed:
            return {"tokens": [0] * self.tokens, "labels": [0] * self.tokens}
        first = self.tokens // 2
        return {"tokens": torch.zeros(self.tokens, dtype=torch.long), "labels": torch.zeros(self.tokens, dtype=torch.long),
                "input_pos": torch.cat([torch.arange(first), torch.arange(self.tokens - first)]), "seq_lens": torch.tensor([first, self.tokens - first])}


class Checkpointer:
    def __init__(self, should_load_recipe_state=False, **_):
        pass

    def load_checkpoint(self):
        return {"model": state["weights"]}


class Logger:
    def log_config(self, config):
        pass

    def log_dict(self, payload, step):
        pass

    def close(self):
        pass


def model_config(job):
    builder, sizes = MODELS[job["model"]]
    sizes = dict(sizes, **({"num_layers": job["layers"]} if job.get("layers") else {}))
    component = f"torchtune.models.{builder}._component_builders."
    if not job.get("lora"):
        return {"_component_": component + builder} | sizes
    lora = job["lora"]
    return {"_component_": component + "lora_" + builder} | sizes | {
        "lora_attn_modules": [name for name in lora["targets"] if name != "mlp"], "apply_lora_to_mlp": "mlp" in lora["targets"],
        "lora_rank": lora["rank"], "lora_alpha": 2 * lora["rank"], "lora_dropout": lora["dropout"], "use_dora": lora.get("use_dora", False),
        "quantize_base": bool(job.get("quantized"))}


def recipe_config(job):
    optimizer = {"_component_": OPTIMIZERS[job["optimizer"]], "lr": 2e-5}
    if job["implementation"] != "default":
        optimizer["foreach" if job["implementation"] == "foreach" else "fused"] = job["implementation"] != "loop"
    if job["chunks"]:
        loss = {"_component_": "torchtune.modules.loss.CEWithChunkedOutputLoss", "num_output_chunks": job["chunks"]}
    else:
        loss = {"_component_": "torch.nn.CrossEntropyLoss"}
    return {
        "output_dir": "unused", "device": "cuda", "dtype": job["precision"], "seed": 0, "shuffle": False, "epochs": 1, "max_steps_per_epoch": STEPS,
        "batch_size": job["batch"], "gradient_accumulation_steps": job["accumulation"], "optimizer_in_bwd": job["in_backward"],
        "clip_grad_norm": job["clip"], "compile": False, "enable_activation_checkpointing": bool(job["checkpointing"]),
        "enable_activation_offloading": False, "resume_from_checkpoint": False, "log_every_n_steps": 1, "log_peak_memory_stats": True,
        "save_adapter_weights_only": False, "tokenizer": {"_component_": "tuning.Tokenizer"},
        "dataset": {"_component_": "tuning.Rows", "tokens": job["seq"], "count": job["batch"] * job["accumulation"] * (1 + STEPS),
                    "packed": job.get("packed", False)},
        "checkpointer": {"_component_": "tuning.Checkpointer", "model_type": "LLAMA3"}, "metric_logger": {"_component_": "tuning.Logger"},
        "lr_scheduler": {"_component_": "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup", "num_warmup_steps": 100},
        "optimizer": optimizer, "loss": loss, "model": model_config(job)}


def weights_of(job):
    """A checkpoint in the type of the run, its pages untouched; without adapters."""
    from omegaconf import OmegaConf
    from torchtune import config, training

    plain = OmegaConf.create(model_config(dict(job, lora=None, quantized=None)))
    kind = {"bf16": torch.bfloat16, "fp32": torch.float32}[job["precision"]]
    with training.set_default_dtype(kind), torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in config.instantiate(plain).state_dict().items()}
    return {name: torch.empty(shape, dtype=kind) for name, shape in shapes.items()}


def recipe_class(job):
    """Recipes are files beside the package, and no modules."""
    import torchtune

    name = ("lora" if job.get("lora") else "full") + "_finetune_single_device"
    path = os.path.join(os.path.dirname(torchtune.__file__), "..", "recipes", name + ".py")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.LoRAFinetuneRecipeSingleDevice if job.get("lora") else module.FullFinetuneRecipeSingleDevice


def begins(phases, name, function):
    def phased(*args, **kwargs):
        if phases.step:
            phases.begin(name)
        return function(*args, **kwargs)

    return phased


def say_phases(job, phases, recipe):
    from torchtune import training, utils

    model = recipe._model
    moved = utils.batch_to_device

    def batch_to_device(*args, **kwargs):
        if phases.micro_step % job["accumulation"] == 0:
            phases.step += 1
        phases.micro_step += 1
        phases.begin("forward")
        return moved(*args, **kwargs)

    utils.batch_to_device = batch_to_device
    recipe._loss_fn.register_forward_pre_hook(lambda *_: phases.begin("loss"))
    backward = torch.Tensor.backward

    def phased_backward(*args, **kwargs):
        phases.begin("backward")
        result = backward(*args, **kwargs)
        phases.name_gradients(model)
        return result

    torch.Tensor.backward = phased_backward
    training.scale_grads = begins(phases, "clip", training.scale_grads)
    if recipe._optimizer is not None:
        recipe._optimizer.step = begins(phases, "optimizer", recipe._optimizer.step)
        recipe._optimizer.zero_grad = begins(phases, "zero_grad", recipe._optimizer.zero_grad)
    recipe.save_checkpoint = lambda *_, **__: phases.end()


def skip_inductor():
    """Compiled functions run as they are compiled, and ask for what they ask for; only their kernels, which want a driver, are neither built nor launched."""
    from torch._inductor.runtime import triton_helpers, triton_heuristics
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    card = torch.cuda.get_device_properties(0)
    properties = dict(max_shared_mem=card.shared_memory_per_block_optin, max_num_regs=65536, multiprocessor_count=card.multi_processor_count, warpSize=32)

    class Driver:
        utils = types.SimpleNamespace(get_device_properties=lambda _: properties)
        get_current_target = staticmethod(lambda: GPUTarget("cuda", 10 * card.major + card.minor, 32))
        get_current_device = staticmethod(lambda: 0)
        get_current_stream = staticmethod(lambda _: 0)
        get_device_interface = staticmethod(lambda: torch.cuda)
        get_active_torch_device = staticmethod(lambda: torch.device("cuda", 0))
        is_active = staticmethod(lambda: True)

    driver.set_active(Driver())
    triton_helpers.set_driver_to_gpu = lambda: None
    triton_heuristics.CachingAutotuner.run = lambda *_, **__: None
    triton_heuristics.CachingAutotuner.precompile = lambda *_, **__: None


def unnoted(job):
    """Reads in C++ that nobody notes: torch.tensor() of the scaled frequencies, one by one, of each rotary embedding."""
    builder, sizes = MODELS[job["model"]]
    return sizes["embed_dim"] // sizes["num_heads"] // 2 if builder in SCALED else 0


def run(job, phases):
    from omegaconf import OmegaConf
    from torchtune import training

    training.get_memory_stats = lambda *_, **__: dict(peak_memory_active=0, peak_memory_alloc=0, peak_memory_reserved=0)  # it resets the peaks
    torch.cuda.nccl.version = lambda: (2, 29, 0)  # which verify_bf16_support wants to be there
    if job.get("packed"):
        skip_inductor()
    state["weights"] = weights_of(job)
    phases.begin("load")
    configuration = OmegaConf.create(recipe_config(job))
    recipe = recipe_class(job)(cfg=configuration)
    recipe.setup(cfg=configuration)
    phases.name_parameters(recipe._model)
    say_phases(job, phases, recipe)
    recipe.train()
    optimizer = recipe._optimizer if not job["in_backward"] else None
    if optimizer is None:
        states = {}
        for one in recipe._optim_ckpt_wrapper.optim_map.values():
            states |= one.state
        optimizer = types.SimpleNamespace(state=states)
    return recipe._model, optimizer
