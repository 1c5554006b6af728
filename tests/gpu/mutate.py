"""Seeds faults into the CUDA kernels one at a time and shows that the tests on the GPU in software catch each of them.

  mutate.py BUILD [NAME ...]     BUILD: a build of this tree (build/check); NAME: of some mutants alone; -j N at once

A mutant is one source with one place changed. It is compiled alone, linked in front of the library, and its test must fail, or
still run after two minutes of processor time (the tests take seconds), which other work on the machine does not count into. One
that passes, and a place that is not found exactly once, is an error. A few minutes."""

import argparse
import concurrent.futures
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNELS, ATTENTION, COLUMNS = "test_cuda_kernels", "test_cuda_attention", "test_cuda_columns"
OPTIM, QUANT, DECODE = "test_cuda_optim", "test_cuda_quant", "test_cuda_decode"
JOBS, BACKEND = "test_cuda_jobs", "test_cuda_backend"
DEVICE = "gpu/device.cuh"
LIMIT = 120  # seconds of processor

# name, file with the place, what is compiled where that is a header, test, the place, what stands there instead
MUTANTS = [
    # missing barriers
    ("sum-without-barrier", DEVICE, "norm", KERNELS, "= value;\n  __syncthreads();\n  T sum = 0;", "= value;\n  T sum = 0;"),
    ("sum-without-first-barrier", DEVICE, "norm", KERNELS, "  __syncthreads(); /* whoever still reads the last one's partial sums */\n", ""),
    ("max-without-barrier", DEVICE, "loss", KERNELS, "  __syncthreads();\n  float most = partial[0];", "  float most = partial[0];"),
    ("digits-without-barrier", "ops/embed/cuda.cu", "embed", KERNELS, "  __syncthreads();\n  return count;", "  return count;"),
    ("scan-without-barrier", "ops/embed/cuda.cu", "embed", KERNELS, "total[mine] = sum;\n  __syncthreads();", "total[mine] = sum;"),
    ("factors-without-barrier", "ops/optim/cuda.cu", None, OPTIM, "  __syncthreads();\n  factors f = shared[0];", "  factors f = shared[0];"),
    ("scores-without-barrier", "ops/attention/cuda.cu", "attention", ATTENTION, "factor[e / 2];\n    __syncthreads();", "factor[e / 2];"),
    ("sums-without-barrier", "ops/attention/cuda.cu", "attention", ATTENTION, "(sums, s, v, begin);\n    __syncthreads();", "(sums, s, v, begin);"),
    ("keys-without-barrier", "ops/attention/cuda_backward.cu", "attention", ATTENTION, "    __syncthreads(); /* whoever still reads the last keys */\n", ""),
    ("first-without-barrier", "ops/attention/scores.cuh", "attention", ATTENTION, "  __syncthreads(); /* whoever still reads the last ones */\n", ""),
    ("barrier-of-some", "ops/optim/cuda.cu", None, OPTIM, "  __syncthreads();\n  factors f = shared[0];\n  if (left <= 0) return;",
     "  if (left <= 0) return;\n  __syncthreads();\n  factors f = shared[0];"),
    # lane masks, and which lane
    ("half-a-mask", DEVICE, "norm", KERNELS, "__device__ __forceinline__ float hri_warp_sum(float value) {\n  for (int by = HRI_WARP / 2; by > 0; by /= 2) value += __shfl_xor_sync(HRI_ALL_LANES,",
     "__device__ __forceinline__ float hri_warp_sum(float value) {\n  for (int by = HRI_WARP / 2; by > 0; by /= 2) value += __shfl_xor_sync(0xFFFFu,"),
    ("mask-of-absent-lanes", "ops/attention/cuda_backward.cu", "attention", ATTENTION, "if (row >= n) return; /* the whole warp */",
     "if (row >= n || (int)threadIdx.x % HRI_WARP >= a.head_dim) return;"),
    ("half-a-sum", DEVICE, "norm", KERNELS, "float hri_warp_sum(float value) {\n  for (int by = HRI_WARP / 2;", "float hri_warp_sum(float value) {\n  for (int by = HRI_WARP / 4;"),
    ("other-quad", "ops/attention/cuda.cu", "attention", ATTENTION, "return fmaxf(v, __shfl_xor_sync(HRI_ALL_LANES, v, 2));", "return fmaxf(v, __shfl_xor_sync(HRI_ALL_LANES, v, 4));"),
    # late copies
    ("late-keys", "ops/attention/cuda.cu", "attention", ATTENTION, "hri_copy_wait<1>();\n    __syncthreads();\n    tile_scores", "hri_copy_wait<2>();\n    __syncthreads();\n    tile_scores"),
    ("late-values", "ops/attention/cuda.cu", "attention", ATTENTION, "hri_copy_wait<1>();\n    __syncthreads();\n    tile_sums", "hri_copy_wait<2>();\n    __syncthreads();\n    tile_sums"),
    ("late-queries", "ops/attention/cuda_backward.cu", "attention", ATTENTION, "hri_copy_wait<0>();\n      __syncthreads();\n      tile_scores", "hri_copy_wait<1>();\n      __syncthreads();\n      tile_scores"),
    ("unshared-copy", "ops/attention/cuda_backward.cu", "attention", ATTENTION, "hri_copy_wait<0>();\n    __syncthreads();\n    tile_scores", "hri_copy_wait<0>();\n    tile_scores"),
    # fragments
    ("left-row", "ops/attention/tiles.cuh", "attention", ATTENTION, "s.template load_matrix<4, false>(a, (row + lane % 16)", "s.template load_matrix<4, false>(a, (row + lane % 8)"),
    ("right-half", "ops/attention/tiles.cuh", "attention", ATTENTION, "k + lane / 8 % 2 * 8);", "k + lane / 16 * 8);"),
    ("right-untransposed", "ops/attention/tiles.cuh", "attention", ATTENTION, "s.template load_matrix<2 * count, true>", "s.template load_matrix<2 * count, false>"),
    ("second-of-two", "ops/attention/tiles.cuh", "attention", ATTENTION, "stride + n + lane / 16 % count * 8);", "stride + n);"),
    ("right-row-fp32", "ops/attention/tiles.cuh", "attention", ATTENTION, "__float_as_uint(s[at + i * 8 + stride])", "__float_as_uint(s[at + i * 8 + 1])"),
    ("result-register", "ops/attention/tiles.cuh", "attention", ATTENTION, "a[1] = pair(c[0][2], c[0][3]);\n    a[2] = pair(c[1][0], c[1][1]);",
     "a[2] = pair(c[0][2], c[0][3]);\n    a[1] = pair(c[1][0], c[1][1]);"),
    ("result-halves", "ops/attention/tiles.cuh", "attention", ATTENTION, "hri_narrow<T>(high).bits << 16 | hri_narrow<T>(low).bits", "hri_narrow<T>(low).bits << 16 | hri_narrow<T>(high).bits"),
    ("lost-low-part", "ops/attention/tiles.cuh", "attention", ATTENTION, "    hri_mma_tf32(d, a_low, b_high);\n", ""),
    # off by one
    ("row-of-norm", "ops/norm/cuda.cu", "norm", KERNELS, "c < n; c += c##_step", "c <= n; c += c##_step"),
    ("vectors-of-norm", "ops/norm/cuda.cu", "norm", KERNELS, "hri_vectors(a->columns, wide, a->x, a->residual, a->y) && ", ""),
    ("blocks-of-norm", "ops/columns.cuh", "norm", KERNELS, "b < blocks; b += HRI_FOLD_GROUPS", "b < blocks - 1; b += HRI_FOLD_GROUPS"),
    ("fold-without-barrier", "ops/columns.cuh", "norm", KERNELS, "= sum;\n  __syncthreads();", "= sum;"),
    ("warps-of-a-fold", "ops/columns.cuh", "linear", COLUMNS, "for (int g = 1; g < HRI_FOLD_GROUPS; g++)", "for (int g = 1; g < 2; g++)"),
    ("last-row-of-norm", "ops/norm/cuda.cu", "norm", KERNELS, "row < range.end; row++", "row < range.end - 1; row++"),
    ("end-of-row-of-loss", "ops/loss/cuda.cu", "loss", KERNELS, "v < a.stored;", "v <= a.stored;"),
    ("label", "ops/loss/cuda.cu", "loss", KERNELS, "if (v + k == label) at_label[0] = l[k];", "if (v + k == label + 1) at_label[0] = l[k];"),
    ("end-of-vocabulary", "ops/loss/cuda.cu", "loss", KERNELS, "if (count == wide) hri_get", "if (true) hri_get"),
    ("sum-of-a-larger-maximum", "ops/loss/cuda.cu", "loss", KERNELS, "if (larger > most) sum *= expf(most - larger);", ""),
    ("end-of-update", "ops/optim/cuda.cu", None, OPTIM, "count = left < HRI_SOME ? (int)left : (int)HRI_SOME;", "count = (int)HRI_SOME;"),
    ("causal", "ops/attention/cuda.cu", "attention", ATTENTION, "k >= first[e / 2] && k <= q ?", "k >= first[e / 2] && k < q ?"),
    ("causal-backward", "ops/attention/cuda_backward.cu", "attention", ATTENTION, "mine <= query + column &&", "mine < query + column &&"),
    ("window", "ops/attention/scores.cuh", "attention", ATTENTION, "first = t - a.window + 1;", "first = t - a.window;"),
    ("first-tile-of-keys", "ops/attention/cuda.cu", "attention", ATTENTION, "int key = load_first(a, firsts, b, query, rows) / keys * keys;", "int key = (load_first(a, firsts, b, query, rows) + keys - 1) / keys * keys;"),
    # dropout of attention
    ("other-elements", "ops/attention/scores.cuh", "attention", ATTENTION, "bits <<= 2 * j;", "bits <<= j;"),
    ("words-of-half-a-chunk", "ops/attention/scores.cuh", "attention", ATTENTION, "by < HRI_DRAW_CHUNK_BLOCKS; by *= 2", "by < HRI_DRAW_CHUNK_BLOCKS / 2; by *= 2"),
    ("other-head", "ops/attention/scores.cuh", "attention", ATTENTION, "(uint32_t)(head << HRI_DRAW_HEAD_SHIFT | block)", "(uint32_t)block"),
    ("row-of-data", "ops/attention/scores.cuh", "attention/cuda_backward", ATTENTION, "(uint32_t)(c.row_base + b)", "(uint32_t)b"),
    ("factor-of-values", "ops/attention/cuda_backward.cu", None, ATTENTION, "kv, begin, a.factor);", "kv, begin, 1);"),
    ("key-of-half-a-chunk", "ops/attention/scores.cuh", "attention", ATTENTION, "(2 * t + (KEYS < HRI_DRAW_CHUNK ? key % HRI_DRAW_CHUNK : 0))", "(2 * t)"),
    # bounds, blocks, addresses
    ("no-zero-fill", "ops/attention/tiles.cuh", "attention", ATTENTION, "there ? 16 : 0", "16"),
    ("vectors-that-do-not-fit", "ops/elements.cuh", "move", KERNELS, "return n % width == 0 && all % 16 == 0;", "return all % 16 == 0;"),
    ("two-blocks-an-index", "ops/embed/cuda.cu", "embed", KERNELS, " || (i > 0 && index[i - 1] == mine)", ""),
    ("places-that-stay", "ops/embed/cuda.cu", "embed", KERNELS, "    at++;\n", ""),
    ("digit-of-another-round", "ops/embed/cuda.cu", "embed", KERNELS, "(index[begin + i] >> shift) % DIGITS", "index[begin + i] % DIGITS"),
    # values
    ("random-word", "ops/optim/step.cuh", "optim", OPTIM, "word[at / 32 % 2 * 2 + k / 2]", "word[at / 32 % 2 * 2 + k % 2]"),
    ("up-half", "ops/pointwise/cuda.cu", "pointwise", KERNELS, "(row * 2 + 1) * width + column", "row * 2 * width + 1 + column"),
    ("rope-sign", "ops/pointwise/cuda.cu", "pointwise", KERNELS, "v[k] * c[k] + u[k] * sine", "v[k] * c[k] - u[k] * sine"),
    ("what-stays-of-a-head", "ops/pointwise/cuda.cu", "pointwise", KERNELS, "i >= turned * D || i % D >= 2 * half", "i >= turned * D"),
    ("rows-ahead", "ops/embed/cuda.cu", "embed", KERNELS, "more = count == AHEAD;", "more = false;"),
    ("end-of-rows-ahead", "ops/embed/cuda.cu", "embed", KERNELS, "i + k >= a.rows || ", ""),
    ("dropout-line", "ops/pointwise/cuda.cu", "pointwise", KERNELS, "(uint32_t)(row % sequence), 0,", "(uint32_t)(row / sequence), 0,"),
    ("group-of-heads", "ops/attention/cuda.cu", "attention", ATTENTION, "kv = a.heads + head / (a.heads / a.kv_heads), D = a.head_dim;\n  int begin = (int)(blockIdx.z % tiles::SPLITS) * width, lane = (int)threadIdx.x % HRI_WARP;\n  int query = (int)(gridDim.x - 1 - blockIdx.x) * rows, end = query + rows < a.sequence ? query + rows : a.sequence;\n  hri_global<const T> qkv",
     "kv = a.heads + head % a.kv_heads, D = a.head_dim;\n  int begin = (int)(blockIdx.z % tiles::SPLITS) * width, lane = (int)threadIdx.x % HRI_WARP;\n  int query = (int)(gridDim.x - 1 - blockIdx.x) * rows, end = query + rows < a.sequence ? query + rows : a.sequence;\n  hri_global<const T> qkv"),
    # columns, heads, DoRA
    ("block-of-columns", "ops/columns.cuh", "linear", COLUMNS, "begin = (int64_t)blockIdx.y * HRI_CUDA_NORM_ROWS", "begin = (int64_t)blockIdx.y * (HRI_CUDA_NORM_ROWS - 1)"),
    ("keys-as-queries", "ops/norm/cuda_heads.cu", None, COLUMNS, "w(query ? a.wq : a.wk, n);\n  hri_global<float>", "w(a.wq, n);\n  hri_global<float>"),
    ("heads-of-a-weight", "ops/norm/cuda_heads.cu", None, COLUMNS, "head < end; head++", "head < end - 1; head++"),
    ("place-of-a-part", "ops/norm/cuda_dora.cu", None, COLUMNS, "if (has) with += a.parts[p];", "with += a.parts[p];"),
    ("length-that-is-there", "ops/norm/cuda_dora.cu", None, COLUMNS, "if (there == there) return;", "if (there != there) return;"),
    ("noise-of-another-site", "ops/pointwise/cuda.cu", None, KERNELS, "(uint64_t)c.step, site, (uint32_t)c.row_base};", "(uint64_t)c.step, site + 1, (uint32_t)c.row_base};"),
    ("slice-before", "ops/move/cuda.cu", None, KERNELS, "(index[0] - a.less) * a.width", "index[0] * a.width"),
    ("pitch-of-a-sum", "ops/move/cuda.cu", None, KERNELS, "v += hri_widen((To)y[row * a.y_stride + column])", "v += hri_widen((To)y[row * a.x_stride + column])"),
    # optimizers
    ("guard", "ops/optim/step.cuh", "optim/cuda_factored", OPTIM, "return at && guard[0] != 0;", "return at && guard[0] > 1;"),
    ("lion-average", "ops/optim/cuda.cu", None, OPTIM, "(grad - *m) * f.one_minus_beta2;\n    return", "(grad - *m) * f.adamw.one_minus_beta1;\n    return"),
    ("growth", "ops/optim/cuda.cu", None, OPTIM, "steps >= interval", "steps > interval"),
    ("maps-without-barrier", "ops/optim/cuda_blocks.cu", None, OPTIM, "  __syncthreads();\n  block_factors f", "  block_factors f"),
    ("tie-of-codes", "ops/optim/cuda_blocks.cu", None, OPTIM, "< x ? half : 0;", "<= x ? half : 0;"),
    ("tie-to-odd", "ops/optim/cuda_blocks.cu", None, OPTIM, "below < 255 && below % 2 == 1", "below < 255 && below % 2 == 0"),
    ("sign-of-codes", "ops/optim/cuda_blocks.cu", None, OPTIM, "negative && code == 127 ? 126 : code", "code"),
    ("columns-of-adafactor", "ops/optim/cuda_factored.cu", None, OPTIM, "b < blocks; b++", "b < 1; b++"),
    ("clip-of-adafactor", "ops/optim/cuda_factored.cu", None, OPTIM, "/ (excess > 1 ? excess : 1)", "/ excess"),
    # quantization
    ("half-of-a-byte", "ops/quant/cuda.cu", None, QUANT, "value[code & 15], scale", "value[code >> 4], scale"),
    ("level-of-the-mean", "ops/quant/cuda.cu", None, QUANT, "rises = !(i & ((step - 1) << (j * power)));", "rises = true;"),
    ("rest-of-the-mean", "ops/quant/cuda.cu", None, QUANT, "i + LANES <= n; i += LANES", "i + LANES < n; i += LANES"),
    ("part-block", "ops/quant/cuda.cu", None, QUANT, "full ? hri_mul_alone(v[k], inverse) : v[k] / most", "hri_mul_alone(v[k], inverse)"),
    ("row-without-barrier", "ops/quant/cuda.cu", None, QUANT, "= bits;\n  __syncthreads();", "= bits;"),
    ("scale-of-q4-k", "ops/quant/cuda_kept.cu", None, QUANT, "(b[12 + at] & 15) | (scale >> 2 & 48)", "(b[12 + at] & 15) | (scale >> 4 & 48)"),
    ("bits-of-q6-k", "ops/quant/cuda_kept.cu", None, QUANT, "b[128 + group / 4 * 32 + in] >> group % 4 * 2", "b[128 + group / 4 * 32 + in] >> group % 2 * 2"),
    # decoding
    ("new-key", "ops/attention/cuda_cached.cu", None, DECODE, "end = begin + SPLIT < position + 1 ? begin + SPLIT : position + 1", "end = begin + SPLIT < position ? begin + SPLIT : position"),
    ("window-of-a-cache", "ops/attention/cuda_cached.cu", None, DECODE, "if (j + e < w.first", "if (j + e <= w.first"),
    ("last-key-alone", "ops/attention/cuda_cached.cu", None, DECODE, "if (j + 1 < w.end) k", "if (j < w.end) k"),
    ("rest-of-a-group", "ops/attention/cuda_cached.cu", None, DECODE, "% parts_of_group * HEADS", "% parts_of_group"),
    ("queries-without-barrier", "ops/attention/cuda_cached.cu", None, DECODE, " : 0;\n  }\n  __syncthreads();", " : 0;\n  }"),
    ("rows-without-barrier", "ops/attention/cuda_cached.cu", None, DECODE, "  __syncthreads();\n  for (int i = (int)threadIdx.x; i < w.heads", "  for (int i = (int)threadIdx.x; i < w.heads"),
    ("rows-side-by-side", "ops/attention/cuda_cached.cu", None, DECODE, "for (int r = 0; r < rows; r++)", "for (int r = 0; r < 1; r++)"),
    ("vectors-ahead", "ops/linear/cuda_product.cu", None, DECODE, "k += STEP * AHEAD", "k += STEP"),
    ("end-of-vectors", "ops/linear/cuda_product.cu", None, DECODE, "if (k + u * STEP >= p.k) continue;", "if (k + u * STEP > p.k) continue;"),
    ("factor-of-a-run", "ops/attention/cuda_cached.cu", None, DECODE, "out += parts[at + d] * factor;", "out += parts[at + d];"),
    ("tiles-without-barrier", "ops/linear/cuda_product.cu", None, DECODE, "p.n, k, end);\n    __syncthreads();", "p.n, k, end);"),
    ("end-of-the-depth", "ops/linear/cuda_product.cu", None, DECODE, "&& k + depth < end;", "&& k + depth <= end;"),
    ("piece-of-the-depth", "ops/linear/cuda_product.cu", None, DECODE, "k < pieces; k++", "k < pieces - 1; k++"),
    ("lane-of-a-row", "ops/linear/cuda_product.cu", None, DECODE, "k += HRI_WARP * HRI_SOME", "k += HRI_WARP"),
    ("last-part-of-fp32", "ops/linear/cuda_product.cu", None, DECODE, "? 2 : (int)PARTS;", "? 2 : 2;"),
    ("last-part-of-fp16", "ops/linear/cuda_product.cu", None, DECODE, "real == HRI_REAL_F16 ? 2", "real == HRI_REAL_F16 ? 1"),
    ("part-that-stays", "ops/linear/cuda_product.cu", None, DECODE, "? 0 : *value - hri_uint_as_float(bits);", "? 0 : *value;"),
    ("products-of-middle-parts", "ops/linear/cuda_product.cu", None, DECODE, "p + q < 2 * PARTS - 2", "p + q < 2"),
    ("columns-of-a-step", "ops/linear/cuda_product.cu", None, DECODE, "hri_mma_bf16(small[1], a, b + 2);", "hri_mma_bf16(small[1], a, b);"),
    ("left-rows-turned", "ops/linear/cuda_product.cu", None, DECODE, "* t.stride + row + lane / 8 % 2 * 8);", "* t.stride + row + lane / 16 * 8);"),
    ("left-depth", "ops/linear/cuda_product.cu", None, DECODE, "(row + lane % 16) * t.stride + k + lane / 16 * 8);", "(row + lane % 16) * t.stride + k);"),
    ("right-columns", "ops/linear/cuda_product.cu", None, DECODE, "(column + lane / 16 * 8 + lane % 8) * t.stride", "(column + lane % 8) * t.stride"),
    ("right-rows-untransposed", "ops/linear/cuda_product.cu", None, DECODE, "load_matrix<4, true>(b,", "load_matrix<4, false>(b,"),
    ("short-line-of-a-tile", "ops/linear/cuda_product.cu", None, DECODE, "left < HRI_SOME ? (int)left : (int)HRI_SOME;\n    float v", "(int)HRI_SOME;\n    float v"),
    ("row-of-a-result", "ops/linear/cuda_product.cu", None, DECODE, "row + lane / 4 + e / 2 * 8", "row + lane / 4 + e % 2 * 8"),
    ("tiles-still-read", "ops/linear/cuda_product.cu", None, DECODE, "    __syncthreads(); /* whoever still reads the last tiles */\n", ""),
    ("results-without-barrier", "ops/linear/cuda_product.cu", None, DECODE, "put_tile(results, sums, small, row);\n  __syncthreads();", "put_tile(results, sums, small, row);"),
    # materialized attention
    ("delta-of-dropped", "ops/attention/cuda_full.cu", None, ATTENTION, "if (lane == 0) delta += p * dp;", "if (lane == 0) delta += dp;"),
    ("chunk-without-barrier", "ops/attention/cuda_full.cu", None, ATTENTION, "stays_of(a, b, head, t, j) : 0;\n    }\n    __syncthreads();", "stays_of(a, b, head, t, j) : 0;\n    }"),
    ("group-of-keys", "ops/attention/cuda_full.cu", None, ATTENTION, "head < (own + 1) * group; head++", "head < own * group + 1; head++"),
]

# the backend: whose a product is, which operand is which, what scratch a node has
ADAPTERS, DEMAND = "backend/cuda/adapters.c", "ops/cuda_demand.c"
MUTANTS += [
    ("types-of-a-product", DEMAND, None, JOBS, "if (a->dtype != b->dtype || (d->dtype", "if ((d->dtype"),
    ("type-of-a-result", DEMAND, None, JOBS, "|| (d->dtype != a->dtype && d->dtype != HRI_F32)) return true;", ") return true;"),
    ("columns-of-a-view", DEMAND, None, JOBS, ".c_row = p.d_stride,", ".c_row = p.n,"),
    ("depth-of-an-adapter", DEMAND, None, JOBS, ".a_column = p.a_turned ? p.a_stride : 1,", ".a_column = 1,"),
    ("sum-of-an-adapter", DEMAND, None, JOBS, ".accumulate = p.accumulate};", ".accumulate = false};"),
    ("bias-of-few-rows", ADAPTERS, None, JOBS, "a.bias = c->at.node->op == HRI_OP_LINEAR ? pointer(c, 2) : NULL;", "a.bias = NULL;"),
    ("scratch-of-a-product", DEMAND, None, JOBS, "return hri_cuda_product_scratch_bytes(&own);", "return 0 * (uint64_t)own.m;"),
    ("operands-of-materialized", ADAPTERS, None, JOBS, "pointer(c, 4), pointer(c, 5), scratch(c), stream(c)));\n}\nstatic hr_status run_attention_cached", "pointer(c, 3), pointer(c, 5), scratch(c), stream(c)));\n}\nstatic hr_status run_attention_cached"),
    ("site-of-attention", ADAPTERS, None, JOBS, "s.draw.site = c->at.node->site;", "s.draw.site = c->at.node->site + 1;"),
    ("scratch-of-a-cache", DEMAND, None, JOBS, "*bytes = hri_cuda_attention_cached_scratch_bytes(&cached);", "(void)cached;"),
    ("verdict-of-before", ADAPTERS, None, JOBS, "fill(gpu, verdict, 0, sizeof(unsigned long long)", "fill(gpu, verdict, 0, 0"),
    ("verdict-in-the-scratch", ADAPTERS, None, JOBS, "(verdict + HRI_CUDA_VERDICT_BYTES)", "verdict"),
    ("scratch-of-codes", DEMAND, None, JOBS, "HRI_CUDA_VERDICT_BYTES + hri_quant_scratch_bytes((uint32_t)node->attr.i[0], &layout)", "HRI_CUDA_VERDICT_BYTES"),
    ("scales-of-scales", "ops/given.c", None, JOBS, ".nested = pointer(g, codes + 2)", ".nested = pointer(g, codes + 1)"),
    ("verdict-unread", "backend/cuda/program.c", None, JOBS, "return node->op == HRI_OP_QUANTIZE ? check_codes(r, node, error) : HR_OK;", "(void)check_codes; return HR_OK;"),
    ("slope-of-another-value", "pass/fuse.c", None, BACKEND, "*slope = hri_operands(f->job, node_at(f, slope_at)), x = slope[1];", "*slope = hri_operands(f->job, node_at(f, slope_at)), x = hri_operands(f->job, node_at(f, at))[0];"),
    ("slope-of-a-shared-value", "pass/fuse.c", None, JOBS, "f->touches[operand_at(f, dx, 2)->value] != 2", "f->touches[operand_at(f, dx, 2)->value] < 2"),
    ("slope-forgotten", ADAPTERS, None, BACKEND, "if (way.apart) return run_apart(c, p);", "if (way.apart) p.epilogue = HRI_GPU_NO_EPILOGUE;"),
    ("epilogue-of-a-gradient", DEMAND, None, BACKEND, "if (node->op == HRI_OP_LINEAR_DX_ACTIVATION) return HRI_GPU_GELU_BACKWARD;", ""),
    ("scratch-of-sums-apart", DEMAND, None, BACKEND, "(own > job->workspace_bytes ? own : job->workspace_bytes)", "0 * own + job->workspace_bytes / 4096"),
    ("growth-unseen", "backend/cuda/watch.c", None, BACKEND, "if (bytes > w->before && bytes - w->before > w->grown)", "if (bytes > w->before + 4096)"),
    ("heads-too-large", DEMAND, None, BACKEND, "columns <= MOST_HEAD_SIZE", "columns <= 2 * MOST_HEAD_SIZE"),
]


def run(command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **options)


def link_line(build, test):
    """What the build links the test with, behind its own object."""
    for line in run(["ninja", "-C", str(build), "-t", "commands", test]).stdout.splitlines():
        if f" -o {test} " in line:
            words = line.split()
            return [w if w.startswith("-") or w.startswith("/") else str(build / w) for w in words[words.index("-o") + 2:] if w not in ("&&", ":")]
    sys.exit(f"mutate: {build} does not know how to link {test}")


def mutate(build, mutant):
    name, place, family, test, old, new = mutant
    text = (ROOT / "src" / place).read_text()
    if text.count(old) != 1:
        return name, f"its place occurs {text.count(old)} times in {place}"
    with tempfile.TemporaryDirectory(dir=build) as folder:
        changed = Path(folder) / place
        changed.parent.mkdir(parents=True)
        changed.write_text(text.replace(old, new))
        source = changed if place.endswith((".cu", ".c")) else (ROOT / "src/ops" / (family if "/" in family else family + "/cuda")).with_suffix(".cu")
        compiled = Path(folder) / "mutant.o"
        language = ["gcc", "-std=c11", "-D_GNU_SOURCE", "-x", "c"] if place.endswith(".c") else ["g++", "-std=c++17", "-x", "c++"]
        result = run([*language, "-O1", "-w", f"-I{folder}", f"-I{ROOT}/include", f"-I{ROOT}/src", "-c", str(source), "-o", str(compiled)])
        if result.returncode:
            return name, "does not compile:\n" + result.stdout
        program = Path(folder) / "mutant"
        own = build / f"CMakeFiles/{test}.dir/tests/gpu/{test}.c.o"
        result = run(["g++", str(own), str(compiled), "-o", str(program)] + link_line(build, test))
        if result.returncode:
            return name, "does not link:\n" + result.stdout
        result = run([str(program)], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 1)))
        if result.returncode == 0:
            return name, f"{test} passes"
        if result.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            print(f"{name}: caught: {test} did not end in {LIMIT} s of processor", flush=True)
            return name, None
        found = [line for line in result.stdout.splitlines() if "findings:" in line or "limit" in line or "ERROR" in line]
        print(f"{name}: caught: {found[0].strip()[:150] if found else 'the test died'}", flush=True)
        return name, None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("-j", type=int, default=int(os.environ.get("DEV_JOBS", os.cpu_count() or 1)))
    arguments = parser.parse_intermixed_args()
    wanted = [m for m in MUTANTS if not arguments.names or m[0] in arguments.names]
    if not wanted:
        sys.exit("mutate: no mutant of that name")
    with concurrent.futures.ThreadPoolExecutor(arguments.j) as pool:
        results = list(pool.map(lambda m: mutate(arguments.build.resolve(), m), wanted))
    bad = [(name, why) for name, why in results if why]
    for name, why in bad:
        print(f"{name}: NOT CAUGHT: {why}")
    print(f"mutate: {len(wanted)} mutants, {len(wanted) - len(bad)} caught")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
