"""A plain forward of GPT-2 and Llama, computed in the dtype of its parameters and in nothing else.

The models of transformers cast norms, softmax, rotary angles and the loss to float32 whatever their parameters are, so
a model loaded as float64 there is no double reference. Everything here stays in the dtype of the parameters: with
float64 parameters this is the reference that the parity data are recorded from, with float32 ones it is one more plain
float32 implementation to measure round-off with.

Names and shapes are those of transformers' state dicts. N rows, T tokens per row, E hidden size, H query heads,
K key-value heads, D head size, V vocabulary.
"""

import math

import torch


def forward(config, params, ids, positions, doc_start):
    """Logits [N,T,V]. ids, positions, doc_start: integer [N,T]; a token attends to columns doc_start..itself of its row."""
    family = {"gpt2": gpt2, "llama": llama}[config["model_type"]]
    return family(config, params, ids, positions, attention_allowed(doc_start))


def sum_of_losses(logits, labels):
    """Sum of -log p(labels[t+1] | ..t) over the labels that are not -100. Labels [N,T] are not shifted."""
    logits, target = logits[:, :-1], labels[:, 1:]
    keep = target != -100
    log_p = logits - torch.logsumexp(logits, dim=-1, keepdim=True)
    picked = log_p.gather(-1, target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return -(picked * keep).sum()


def counted_labels(labels):
    """How many labels the loss counts: the first column is nobody's target."""
    return int((labels[:, 1:] != -100).sum())


def attention_allowed(doc_start):
    """Bool [N,T,T]: row i may look at column j when doc_start[i] <= j <= i (one document, causal)."""
    column = torch.arange(doc_start.shape[1])
    return (column[None, None, :] >= doc_start[:, :, None]) & (column[None, None, :] <= column[None, :, None])


def attention(q, k, v, allowed):
    """q [N,T,H,D], k and v [N,T,K,D] (query head h reads key-value head h / (H/K)) -> [N,T,H*D]."""
    group = q.shape[2] // k.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(~allowed[:, None], -math.inf)
    weights = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return (weights @ v).transpose(1, 2).flatten(2)


def layer_norm(x, weight, bias, eps):
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred / torch.sqrt((centred * centred).mean(dim=-1, keepdim=True) + eps) * weight + bias


def rms_norm(x, weight, eps):
    return x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + eps) * weight


def gelu_new(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


def gpt2(config, params, ids, positions, allowed):
    """Conv1D weights are [in,out]; the head is wte."""
    def at(name):
        return params["transformer." + name]

    heads, eps = config["n_head"], config["layer_norm_epsilon"]
    x = at("wte.weight")[ids] + at("wpe.weight")[positions]
    for layer in range(config["n_layer"]):
        def h(name):
            return at(f"h.{layer}.{name}")

        y = layer_norm(x, h("ln_1.weight"), h("ln_1.bias"), eps)
        qkv = y @ h("attn.c_attn.weight") + h("attn.c_attn.bias")
        q, k, v = (part.unflatten(-1, (heads, -1)) for part in qkv.chunk(3, dim=-1))
        x = x + attention(q, k, v, allowed) @ h("attn.c_proj.weight") + h("attn.c_proj.bias")
        y = layer_norm(x, h("ln_2.weight"), h("ln_2.bias"), eps)
        y = gelu_new(y @ h("mlp.c_fc.weight") + h("mlp.c_fc.bias"))
        x = x + y @ h("mlp.c_proj.weight") + h("mlp.c_proj.bias")
    x = layer_norm(x, at("ln_f.weight"), at("ln_f.bias"), eps)
    return x @ at("wte.weight").T


def rope_frequencies(config, dtype):
    """Radians per position of the D/2 rotated pairs: default, linear, llama3."""
    rope, dim = config["rope_parameters"], config["head_dim"]
    frequency = rope["rope_theta"] ** (-torch.arange(0, dim, 2, dtype=dtype) / dim)
    if rope["rope_type"] == "linear":
        frequency = frequency / rope["factor"]
    elif rope["rope_type"] == "llama3":
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        turns = rope["original_max_position_embeddings"] * frequency / (2 * math.pi)
        smooth = ((turns - low) / (high - low)).clamp(0, 1)  # 0: long waves, all scaled; 1: short waves, kept
        frequency = (1 - smooth) * frequency / rope["factor"] + smooth * frequency
    elif rope["rope_type"] != "default":
        raise ValueError(f"rope_type {rope['rope_type']}")
    return frequency


def rotate(x, angle):
    """x [N,T,heads,D] turned by angle [N,T,D/2]; element i pairs with element i + D/2."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = torch.cos(angle)[:, :, None], torch.sin(angle)[:, :, None]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def llama(config, params, ids, positions, allowed):
    """Linear weights are [out,in]; biases where the parameters hold them."""
    def linear(x, name):
        y = x @ params[name + ".weight"].T
        return y + params[name + ".bias"] if name + ".bias" in params else y

    embedding = params["model.embed_tokens.weight"]
    dim, eps = config["head_dim"], config["rms_norm_eps"]
    angle = positions.to(embedding.dtype)[..., None] * rope_frequencies(config, embedding.dtype)
    x = embedding[ids]
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        y = rms_norm(x, params[name + "input_layernorm.weight"], eps)
        q, k, v = (linear(y, name + f"self_attn.{part}_proj").unflatten(-1, (-1, dim)) for part in "qkv")
        y = attention(rotate(q, angle), rotate(k, angle), v, allowed)
        x = x + linear(y, name + "self_attn.o_proj")
        y = rms_norm(x, params[name + "post_attention_layernorm.weight"], eps)
        gate = linear(y, name + "mlp.gate_proj")
        x = x + linear(gate / (1 + torch.exp(-gate)) * linear(y, name + "mlp.up_proj"), name + "mlp.down_proj")
    x = rms_norm(x, params["model.norm.weight"], eps)
    return x @ params.get("lm_head.weight", embedding).T
