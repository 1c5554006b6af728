"""Records what PyTorch's own parser makes of allocator settings: tests/alloc/conf_cases.txt.

    python tests/alloc/record_conf.py > tests/alloc/conf_cases.txt

Needs torch 2.12 to 2.15 for x86-64 Linux, also one without CUDA: its c10 library holds the parser of the keys that all
accelerators share. What the parser made of a text is read from the object that holds the settings. A line is: text, tab, then either
"error" or the sizes of large segments, max_split, max_non_split_rounding, the threshold, expandable, background threads and the 16 divisions.
"""
import ctypes
import os
import random

import torch

LIBRARY = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"))
CLASS = "_ZN3c1016CachingAllocator26AcceleratorAllocatorConfig"
INSTANCE = LIBRARY[CLASS + "8instanceEv"]
INSTANCE.restype = ctypes.c_void_p
DIVISIONS = LIBRARY[CLASS + "24roundup_power2_divisionsEm"]
DIVISIONS.restype = ctypes.c_size_t
DIVISIONS.argtypes = [ctypes.c_size_t]
# what stays from one text to the next there is set back by this
DEFAULTS = "large_segment_size_mb:20,expandable_segments:False,pinned_use_background_threads:False"

TEXTS = """
max_split_size_mb:20|max_split_size_mb:19|max_split_size_mb:21x|max_split_size_mb: 2 1|max_split_size_mb:128MB
max_split_size_mb:21,|  max_split_size_mb:21 , garbage_collection_threshold:0.5|max_split_size_mb:-1|max_split_size_mb:+32
max_split_size_mb:99999999999999|max_split_size_mb:0x20|max_split_size_mb:3.7e1|max_split_size_mb:100.9|max_split_size_mb:abc
max_split_size_mb:18446744073709551615|max_split_size_mb:18446744073709551616|max_split_size_mb:[21]|max_split_size_mb::21
max_split_size_mb:17592186044415|max_split_size_mb:17592186044416|max_split_size_mb:21,max_split_size_mb:40
garbage_collection_threshold:0|garbage_collection_threshold:1|garbage_collection_threshold:1e-3|garbage_collection_threshold:nan
garbage_collection_threshold:0.5foo|garbage_collection_threshold:abc|garbage_collection_threshold:.8|garbage_collection_threshold:-0.1
garbage_collection_threshold:0x1p-3|garbage_collection_threshold:inf|garbage_collection_threshold:0.999999999999
roundup_power2_divisions:8|roundup_power2_divisions:3|roundup_power2_divisions:0|roundup_power2_divisions:1|roundup_power2_divisions:16.5
roundup_power2_divisions:-1|roundup_power2_divisions:[256:1,512:2,>:4]|roundup_power2_divisions:[256:1,512:2,1024:4,>:8]
roundup_power2_divisions:[256:3]|roundup_power2_divisions:[3:1]|roundup_power2_divisions:[]|roundup_power2_divisions:[>:4]
roundup_power2_divisions:[>:4,8:2]|roundup_power2_divisions:[65536:2]|roundup_power2_divisions:[131072:2]|roundup_power2_divisions:[256:1,]
roundup_power2_divisions:[256:1 512:2]|roundup_power2_divisions:[256:0]|roundup_power2_divisions:[0:1]|roundup_power2_divisions:[[256:1]]
roundup_power2_divisions:[256]|roundup_power2_divisions:[256:1,512]|roundup_power2_divisions:[256:1,512:2|roundup_power2_divisions:[256:1,128:2,>:4]
roundup_power2_divisions:[64:8,256:4,1024:4,>:1]|roundup_power2_divisions:[1:1,2:2,4:4,8:8,16:16]|roundup_power2_divisions:[32768:2,>:8]
roundup_power2_divisions: [ 256 : 1 , 512 : 2 , > : 4 ] |roundup_power2_divisions:4,roundup_power2_divisions:[256:0]
roundup_power2_divisions:4,roundup_power2_divisions:[>:8]|roundup_power2_divisions:[256:1,>:4,512:2]|roundup_power2_divisions:[256:]
expandable_segments:True|expandable_segments:False|expandable_segments:true|expandable_segments:1|expandable_segments|expandable_segments:
expandable_segments=True|expandable_segments:True,max_split_size_mb:64|expandable_segments:Tr ue|expandable_segments:[True]
large_segment_size_mb:20|large_segment_size_mb:30|large_segment_size_mb:10|large_segment_size_mb:11|large_segment_size_mb:0
large_segment_size_mb:32|max_split_size_mb:24,large_segment_size_mb:32|max_split_size_mb:32,large_segment_size_mb:32
large_segment_size_mb:32,max_non_split_rounding_mb:31|max_non_split_rounding_mb:40,large_segment_size_mb:32
max_non_split_rounding_mb:20|max_non_split_rounding_mb:19|max_non_split_rounding_mb:512|large_segment_size_mb:32,large_segment_size_mb:24
pinned_use_background_threads:True|pinned_use_background_threads:yes|pinned_use_background_threads:True,expandable_segments:True
"""


def settings():
    place = INSTANCE()
    sizes = (ctypes.c_uint64 * 3).from_address(place)
    threshold = ctypes.c_double.from_address(place + 48).value
    flags = (ctypes.c_uint8 * 2).from_address(place + 56)
    divisions = [DIVISIONS(1 << (20 + k)) for k in range(16)]
    return " ".join([*map(str, sizes), repr(threshold), *map(str, flags), *map(str, divisions)])


def answer(text):
    torch._C._accelerator_setAllocatorSettings(DEFAULTS)
    try:
        torch._C._accelerator_setAllocatorSettings(text)
        return settings()
    except (ValueError, RuntimeError, IndexError):
        return "error"


def random_texts(count):
    rng = random.Random(6)
    for _ in range(count):
        items = []
        if rng.random() < 0.5:
            items.append(f"max_split_size_mb:{rng.choice([20, 21, 64, 512, 4096])}")
        if rng.random() < 0.3:
            items.append(f"max_non_split_rounding_mb:{rng.choice([20, 32, 1000])}")
        if rng.random() < 0.3:
            items.append(f"garbage_collection_threshold:{rng.random()!r}")
        if rng.random() < 0.7:
            entries = [f"{1 << rng.randrange(17)}:{rng.choice([0, 1, 2, 4, 8, 64])}" for _ in range(rng.randrange(1, 5))]
            if rng.random() < 0.5:
                entries.append(f">:{rng.choice([0, 1, 2, 4])}")
            items.append("roundup_power2_divisions:[" + ",".join(entries) + "]")
        if rng.random() < 0.5:
            items.append(f"expandable_segments:{rng.choice(['True', 'False'])}")
        rng.shuffle(items)
        yield ",".join(items)


def main():
    texts = [t for line in TEXTS.strip("\n").split("\n") for t in line.split("|")] + list(random_texts(60))
    for text in texts:
        print(text, answer(text), sep="\t")


main()
