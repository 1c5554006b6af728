"""A plain forward of GPT-2, and of the families with rotary positions, computed in the dtype of its parameters and in nothing else.

The models of transformers cast norms, softmax, rotary angles and the loss to float32 whatever their parameters are, so
a model loaded as float64 there is no double reference. Everything here stays in the dtype of the parameters: with
float64 parameters this is the reference that the parity data are recorded from, with float32 ones it is one more plain
float32 implementation to measure round-off with.

Names and shapes are those of transformers' state dicts. N rows, T tokens per row, E hidden size, H query heads,
K key-value heads, D head size, V vocabulary.
"""

import math

import torch


def forward(config, params, ids, positions, doc_start, longest=None):
    """Logits [N,T,V]. ids, positions, doc_start: integer [N,T]; a token attends to columns doc_start..itself of its row.

    longest: the length that dynamic and longrope scaling are made for; T when not given.
    """
    if config["model_type"] == "gpt2":
        return gpt2(config, params, ids, positions, attention_allowed(doc_start))
    return decoder(config, params, ids, positions, doc_start, longest or ids.shape[1])


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


def attention_allowed(doc_start, window=None):
    """Bool [N,T,T]: row i may look at column j when doc_start[i] <= j <= i, and i - j < window if there is one."""
    column = torch.arange(doc_start.shape[1])
    allowed = (column[None, None, :] >= doc_start[:, :, None]) & (column[None, None, :] <= column[None, :, None])
    return allowed if window is None else allowed & (column[None, None, :] > column[None, :, None] - window)


def capped(x, cap):
    return cap * torch.tanh(x / cap) if cap else x


def attention(q, k, v, allowed, scale=None, cap=None):
    """q [N,T,H,D], k and v [N,T,K,D] (query head h reads key-value head h / (H/K)) -> [N,T,H*D]."""
    group = q.shape[2] // k.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = capped(q @ k.transpose(-1, -2) * (scale or 1 / math.sqrt(q.shape[-1])), cap)
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


def activation(name, x):
    if name in ("silu", "swish"):
        return x / (1 + torch.exp(-x))
    if name in ("gelu_new", "gelu_pytorch_tanh"):
        return gelu_new(x)
    if name == "gelu":
        return 0.5 * x * torch.special.erfc(-x / math.sqrt(2.0))
    if name == "relu":
        return torch.where(x > 0, x, torch.zeros_like(x))
    raise ValueError(f"activation {name}")


def gpt2(config, params, ids, positions, allowed):
    """Conv1D weights are [in,out]; the head is wte, or lm_head where there is one beside."""
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
        y = activation(config["activation_function"], y @ h("mlp.c_fc.weight") + h("mlp.c_fc.bias"))
        x = x + y @ h("mlp.c_proj.weight") + h("mlp.c_proj.bias")
    x = layer_norm(x, at("ln_f.weight"), at("ln_f.bias"), eps)
    return x @ params.get("lm_head.weight", at("wte.weight")).T


def yarn_share(rope, dim, dtype):
    """1 where a pair keeps its frequency, 0 where it is stretched, a ramp between (section 3.2 of the YaRN paper)."""
    def pair(rotations):
        return dim * math.log(rope["original_max_position_embeddings"] / (rotations * 2 * math.pi)) / (2 * math.log(rope["rope_theta"]))

    low, high = pair(rope.get("beta_fast") or 32), pair(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    return 1 - ((torch.arange(dim // 2, dtype=dtype) - low) / (max(high - low, 0.001))).clamp(0, 1)


def rope_factor(config, rope):
    """What cosines and sines are multiplied by."""
    if rope.get("attention_factor") is not None:
        return rope["attention_factor"]
    if rope["rope_type"] == "yarn":
        def scale(m):
            return 0.1 * m * math.log(rope["factor"]) + 1

        ratio = rope.get("mscale") and rope.get("mscale_all_dim")
        return scale(rope["mscale"]) / scale(rope["mscale_all_dim"]) if ratio else scale(1)
    if rope["rope_type"] == "longrope":
        original = rope["original_max_position_embeddings"]
        stretch = rope.get("factor") or config["max_position_embeddings"] / original
        return math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 else 1
    return 1


def rope_frequencies(config, rope, longest, dtype):
    """(radians per position of the rotated pairs, factor on cosines and sines)"""
    dim = int((config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]) * rope.get("partial_rotary_factor", 1))
    kind, theta = rope["rope_type"], rope["rope_theta"]
    if kind == "dynamic" and longest > config["max_position_embeddings"]:
        stretch = rope["factor"] * longest / config["max_position_embeddings"] - (rope["factor"] - 1)
        theta = theta * stretch ** (dim / (dim - 2))
    frequency = theta ** (-torch.arange(0, dim, 2, dtype=dtype) / dim)
    if kind == "linear":
        frequency = frequency / rope["factor"]
    elif kind == "llama3":
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        turns = rope["original_max_position_embeddings"] * frequency / (2 * math.pi)
        smooth = ((turns - low) / (high - low)).clamp(0, 1)  # 0: long waves, all scaled; 1: short waves, kept
        frequency = (1 - smooth) * frequency / rope["factor"] + smooth * frequency
    elif kind == "yarn":
        share = yarn_share(rope, dim, dtype)
        frequency = share * frequency + (1 - share) * frequency / rope["factor"]
    elif kind == "longrope":
        long = longest > rope["original_max_position_embeddings"]
        frequency = frequency / torch.tensor(rope["long_factor" if long else "short_factor"], dtype=dtype)
    elif kind not in ("default", "dynamic"):
        raise ValueError(f"rope_type {kind}")
    return frequency, rope_factor(config, rope)


def rotate(x, angle, factor=1):
    """The first R of each head of x [N,T,heads,D] turned by angle [N,T,R/2]; element i pairs with element i + R/2."""
    turned, rest = x[..., :2 * angle.shape[-1]], x[..., 2 * angle.shape[-1]:]
    first, second = turned.chunk(2, dim=-1)
    cos, sin = factor * torch.cos(angle)[:, :, None], factor * torch.sin(angle)[:, :, None]
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


def sliding_layers(config):
    """Bool per layer: does it see sliding_window tokens only?"""
    layers = config["num_hidden_layers"]
    if not config.get("sliding_window") or config.get("use_sliding_window") is False:
        return [False] * layers
    return [kind == "sliding_attention" for kind in config["layer_types"]] if config.get("layer_types") else [True] * layers


def decoder(config, params, ids, positions, doc_start, longest):
    """The families with rotary positions. Linear weights are [out,in]; biases, norms of heads, and what is normed before and behind
    attention and MLP, where the parameters hold them. Attention and MLP side by side read one norm."""
    family = config["model_type"]
    gemma = family.startswith("gemma")
    four_norms = family in ("gemma2", "gemma3_text")
    embedding = params["model.embed_tokens.weight"]
    heads, kv_heads, eps = config["num_attention_heads"], config["num_key_value_heads"], config.get("rms_norm_eps") or config["layer_norm_eps"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    scale = config["query_pre_attn_scalar"] ** -0.5 if four_norms else config.get("attention_multiplier")
    act = config["hidden_activation"] if four_norms else config["hidden_act"]
    share = config.get("residual_multiplier", 1)
    parameters = config["rope_parameters"]
    sliding = sliding_layers(config)
    masks = [attention_allowed(doc_start, config["sliding_window"] if slides else None) for slides in (False, True)] if any(sliding) \
        else [attention_allowed(doc_start)]

    def linear(x, name):
        y = x @ params[name + ".weight"].T
        return y + params[name + ".bias"] if name + ".bias" in params else y

    def norm(x, name):
        weight = params[name + ".weight"] + 1 if gemma else params[name + ".weight"]
        return layer_norm(x, weight, params[name + ".bias"], eps) if name + ".bias" in params else rms_norm(x, weight, eps)

    def projected(x, name, parts, fused, sizes):
        if name + fused + ".weight" in params:
            return linear(x, name + fused).split(sizes, dim=-1)
        return [linear(x, name + part) for part in parts]

    def normed_heads(x, name):
        """[N,T,heads*D] -> [N,T,heads,D], normed head by head or all at once, by the length of the weight."""
        weight = params.get(name + ".weight")
        if weight is not None and len(weight) != dim:
            x, weight = norm(x, name), None
        x = x.unflatten(-1, (-1, dim))
        return x if weight is None else norm(x, name)

    def attend(y, layer, name):
        q, k, v = projected(y, name, ("q_proj", "k_proj", "v_proj"), "qkv_proj", [heads * dim, kv_heads * dim, kv_heads * dim])
        q, k, v = normed_heads(q, name + "q_norm"), normed_heads(k, name + "k_norm"), v.unflatten(-1, (-1, dim))
        if config.get("no_rope_layers", [1] * (layer + 1))[layer]:
            rope = parameters["sliding_attention" if sliding[layer] else "full_attention"] if "full_attention" in parameters else parameters
            frequency, factor = rope_frequencies(config, rope, longest, embedding.dtype)
            angle = positions.to(embedding.dtype)[..., None] * frequency
            q, k = rotate(q, angle, factor), rotate(k, angle, factor)
        y = attention(q, k, v, masks[sliding[layer]], scale, config.get("attn_logit_softcapping"))
        return linear(y, name + ("dense" if family == "phi" else "o_proj"))

    def feed_forward(y, name):
        if family == "phi":
            return linear(activation(act, linear(y, name + "fc1")), name + "fc2")
        gate, up = projected(y, name, ("gate_proj", "up_proj"), "gate_up_proj", config["intermediate_size"])
        return linear(activation(act, gate) * up, name + "down_proj")

    x = torch.nn.functional.embedding(ids, embedding, padding_idx=config.get("pad_token_id"))
    x = x * (math.sqrt(config["hidden_size"]) if gemma else config.get("embedding_multiplier", 1))
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        if family == "olmo2":
            x = x + norm(attend(x, layer, name + "self_attn."), name + "post_attention_layernorm")
            x = x + norm(feed_forward(x, name + "mlp."), name + "post_feedforward_layernorm")
            continue
        y = norm(x, name + "input_layernorm")
        if family == "phi" or config.get("use_parallel_residual"):
            x = x + attend(y, layer, name + "self_attn.") + feed_forward(y, name + "mlp.")
            continue
        y = attend(y, layer, name + "self_attn.")
        x = x + share * (norm(y, name + "post_attention_layernorm") if four_norms else y)
        y = norm(x, name + ("pre_feedforward_layernorm" if four_norms else "post_attention_layernorm"))
        y = feed_forward(y, name + "mlp.")
        x = x + share * (norm(y, name + "post_feedforward_layernorm") if four_norms else y)
    x = norm(x, "model.final_layernorm" if family == "phi" else "model.norm")
    logits = x @ params.get("lm_head.weight", embedding).T
    if "lm_head.bias" in params:
        logits = logits + params["lm_head.bias"]
    return capped(logits / config.get("logits_scaling", 1), config.get("final_logit_softcapping"))
