/* Pre-tokenizers by the names that GGUF files give them (ggml-org/llama.cpp: src/llama-vocab.cpp), as the
 * tokenizer.json of the same models has them. */
#include "tokenizer/build.h"

/* Patterns, escaped for JSON. */
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)|\\\\s+"
#define WORDS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|"
#define REST "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define UPPER "[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]"
#define LOWER "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]"
#define CASES(tail)                                                                                                    \
  "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" UPPER "*" LOWER "+" tail "|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" UPPER "+" LOWER "*" tail
#define CASES_REST "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"

#define SEQUENCE(parts) "{\"type\":\"Sequence\",\"pretokenizers\":[" parts "]}"
#define SPLIT(pattern)                                                                                                 \
  "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern "\"},\"behavior\":\"Isolated\",\"invert\":false},"
#define BYTES(regex) "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":" regex "}"

#define AS_GPT2 BYTES("true")
#define AS_LLAMA3 SEQUENCE(SPLIT(WORDS "\\\\p{N}{1,3}" REST) BYTES("false"))
#define AS_QWEN2 SEQUENCE(SPLIT(WORDS "\\\\p{N}" REST) BYTES("false"))
#define AS_STARCODER SEQUENCE("{\"type\":\"Digits\",\"individual_digits\":true}," BYTES("true"))
#define AS_FALCON                                                                                                      \
  SEQUENCE("{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"}," BYTES(                                            \
      "true") ",{\"type\":\"Digits\",\"individual_digits\":false},"                                                    \
              "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[0-9][0-9][0-9]\"},\"behavior\":\"Isolated\",\"invert\":false}")
#define AS_TEKKEN SEQUENCE(SPLIT(CASES("") "|\\\\p{N}" CASES_REST) BYTES("false"))
#define AS_GPT4O SEQUENCE(SPLIT(CASES("(?i:'s|'t|'re|'ve|'m|'ll|'d)?") "|\\\\p{N}{1,3}" CASES_REST) BYTES("false"))
#define AS_DEFAULT                                                                                                     \
  SEQUENCE(SPLIT("[\\\\p{P}\\\\$\\\\+<=>\\\\^~\\\\|]+") SPLIT(GPT2) SPLIT("\\\\p{N}+") SPLIT("[0-9][0-9][0-9]")        \
               BYTES("false"))
#define NFC "{\"type\":\"NFC\"}"

const hri_pre_type *hri_pre_type_find(const char *name) {
  static const hri_pre_type table[] = {
      {"default", AS_DEFAULT, NULL, false},
      {"gpt-2", AS_GPT2, NULL, false},
      {"phi-2", AS_GPT2, NULL, false},
      {"mpt", AS_GPT2, NULL, false},
      {"olmo", AS_GPT2, NULL, false},
      {"jais", AS_GPT2, NULL, false},
      {"exaone4", AS_GPT2, NULL, false},
      {"llama3", AS_LLAMA3, NULL, true},
      {"llama-v3", AS_LLAMA3, NULL, true},
      {"llama-bpe", AS_LLAMA3, NULL, true},
      {"falcon3", AS_LLAMA3, NULL, true},
      {"pixtral", AS_LLAMA3, NULL, true},
      {"tekken", AS_TEKKEN, NULL, true},
      {"dbrx", AS_LLAMA3, NULL, false},
      {"smaug-bpe", AS_LLAMA3, NULL, false},
      {"glm4", AS_LLAMA3, NULL, false},
      {"chatglm-bpe", AS_LLAMA3, NULL, false},
      {"qwen2", AS_QWEN2, NFC, false},
      {"deepseek-r1-qwen", AS_QWEN2, NFC, false},
      {"smollm", AS_STARCODER, NULL, false},
      {"starcoder", AS_STARCODER, NULL, false},
      {"refact", AS_STARCODER, NULL, false},
      {"command-r", AS_STARCODER, NFC, false},
      {"codeshell", AS_STARCODER, NULL, false},
      {"exaone", AS_STARCODER, NULL, false},
      {"minerva-7b", AS_STARCODER, NULL, false},
      {"falcon", AS_FALCON, NULL, false},
      {"gpt-4o", AS_GPT4O, NULL, false},
  };
  for (uint32_t i = 0; i < sizeof table / sizeof *table; i++)
    if (strcmp(table[i].name, name) == 0) return &table[i];
  return NULL;
}
