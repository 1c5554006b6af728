/* Weights of a model: single file or shards with an index, in both directions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "formats/weights.h"
#include "support/files.h"

/* Four tensors of 8, 24, 4 and 4 bytes; byte k of tensor i is 16 i + k. */
static const hri_safetensor tensors[] = {{"l.0.w", HRI_FILE_F32, 1, {2}, 0, 0},
                                         {"embed", HRI_FILE_BF16, 2, {4, 3}, 0, 0},
                                         {"l.1.w", HRI_FILE_F32, 1, {1}, 0, 0},
                                         {"a.norm", HRI_FILE_U8, 1, {4}, 0, 0}};
static const uint64_t sizes[] = {8, 24, 4, 4};

static hr_status save_listed(uint64_t max_shard_bytes, hri_file_list *files, hr_error *error) {
  hri_weights_writer *writer;
  uint32_t i;
  HRI_TRY(hri_weights_writer_open(directory, tensors, 4, max_shard_bytes, &writer, error));
  for (i = 0; i < 4; i++) {
    unsigned char bytes[24];
    unsigned k;
    hr_status status;
    for (k = 0; k < sizes[i]; k++) bytes[k] = (unsigned char)(16 * i + k);
    status = hri_weights_writer_write(writer, i, 4, bytes + 4, sizes[i] - 4, error);
    if (status == HR_OK) status = hri_weights_writer_write(writer, i, 0, bytes, 4, error);
    if (status == HR_OK) continue;
    hri_weights_writer_abort(writer);
    return status;
  }
  return hri_weights_writer_finish(writer, files, error);
}

static hr_status save(uint64_t max_shard_bytes, hr_error *error) { return save_listed(max_shard_bytes, NULL, error); }

static void assert_loads(const char *path) {
  hri_weights *weights = NULL;
  hr_error error = {0};
  uint32_t i;
  if (hri_weights_open(path, &weights, &error) != HR_OK) fail_msg("%s", error.message);
  assert_int_equal(hri_weights_count(weights), 4);
  assert_true(hri_weights_data_bytes(weights) == 40);
  assert_string_equal(hri_weights_get(weights, 0)->name, "a.norm"); /* by name */
  assert_string_equal(hri_weights_get(weights, 3)->name, "l.1.w");
  for (i = 0; i < 4; i++) {
    uint32_t at = hri_weights_find(weights, tensors[i].name);
    const hri_safetensor *tensor;
    unsigned char bytes[24];
    assert_true(at < 4);
    tensor = hri_weights_get(weights, at);
    assert_int_equal(tensor->dtype, tensors[i].dtype);
    assert_int_equal(tensor->rank, tensors[i].rank);
    assert_true(tensor->end - tensor->begin == sizes[i]);
    assert_true(hri_path_exists(hri_weights_path(weights, at)));
    assert_int_equal(hri_weights_read(weights, at, 1, sizes[i] - 1, bytes, &error), HR_OK);
    assert_int_equal(bytes[0], 16 * i + 1);
    assert_int_equal(bytes[sizes[i] - 2], (unsigned char)(16 * i + sizes[i] - 1));
  }
  assert_true(hri_weights_find(weights, "") == HRI_SAFETENSORS_NONE &&
              hri_weights_find(weights, "z") == HRI_SAFETENSORS_NONE);
  assert_int_equal(hri_weights_read(weights, 4, 0, 1, &i, &error), HR_ERROR_INTERNAL);
  hri_weights_close(weights);
}

/* As huggingface_hub 1.x splits (split_state_dict_into_shards_factory), recorded. */
static void test_split(void **state) {
  static const struct {
    uint64_t max;
    uint32_t count, shards;
    uint64_t sizes[9];
    uint32_t shard_of[9];
  } cases[] = {
      {10, 6, 3, {6, 6, 2, 6, 2, 2}, {0, 1, 1, 2, 2, 2}},
      {10, 9, 5, {6, 20, 3, 11, 1, 1, 10, 0, 0}, {2, 0, 2, 1, 2, 3, 4, 4, 4}},
      {10, 2, 2, {20, 30}, {0, 1}},
      {10, 5, 2, {0, 10, 0, 0, 1}, {0, 0, 0, 0, 1}},
      {0, 3, 2, {0, 1, 0}, {1, 0, 1}},
      {5, 0, 1, {0}, {0}},
      {UINT64_MAX, 2, 1, {1ull << 60, 1ull << 60}, {0, 0}},
  };
  size_t c;
  uint32_t i;
  (void)state;
  for (c = 0; c < sizeof cases / sizeof *cases; c++) {
    hri_safetensor list[9];
    uint32_t shard_of[9], shards = 0;
    hr_error error = {0};
    for (i = 0; i < cases[c].count; i++)
      list[i] = (hri_safetensor){.name = "t", .dtype = HRI_FILE_U8, .rank = 1, .shape = {cases[c].sizes[i]}};
    assert_int_equal(hri_weights_split(list, cases[c].count, cases[c].max, shard_of, &shards, &error), HR_OK);
    assert_int_equal(shards, cases[c].shards);
    for (i = 0; i < cases[c].count; i++) assert_int_equal(shard_of[i], cases[c].shard_of[i]);
  }
}

static void test_single(void **state) {
  hr_error error = {0};
  (void)state;
  assert_int_equal(save(40, &error), HR_OK);
  assert_true(hri_path_exists(in_directory("model.safetensors")));
  assert_false(hri_path_exists(in_directory("model.safetensors.index.json")));
  assert_loads(directory);
  assert_loads(in_directory("model.safetensors"));
}

static void test_sharded(void **state) {
  char *text = NULL;
  uint64_t count;
  hr_error error = {0};
  (void)state;
  assert_int_equal(save(12, &error), HR_OK);
  assert_true(hri_path_exists(in_directory("model-00001-of-00003.safetensors")));
  assert_false(hri_path_exists(in_directory("model.safetensors")));
  assert_int_equal(hri_file_read(in_directory("model.safetensors.index.json"), 4096, &text, &count, &error), HR_OK);
  assert_string_equal(
      text, "{\n  \"metadata\": {\n    \"total_parameters\": 19,\n    \"total_size\": 40\n  },\n  \"weight_map\": {\n"
            "    \"a.norm\": \"model-00003-of-00003.safetensors\",\n"
            "    \"embed\": \"model-00001-of-00003.safetensors\",\n"
            "    \"l.0.w\": \"model-00002-of-00003.safetensors\",\n"
            "    \"l.1.w\": \"model-00002-of-00003.safetensors\"\n  }\n}\n");
  hri_free(text);
  assert_loads(directory);
  assert_loads(in_directory("model.safetensors.index.json"));
}

/* Nothing is written over: a directory that holds weights is not a fresh one. */
static void test_taken_names(void **state) {
  hr_error error = {0};
  (void)state;
  write_text("model.safetensors", "old");
  assert_int_equal(save(0, &error), HR_ERROR_IO);
  assert_says(&error, "model.safetensors: File exists");
  write_text("model-00002-of-00003.safetensors", "old");
  assert_int_equal(save(12, &error), HR_ERROR_IO);
  assert_says(&error, "model-00002-of-00003.safetensors: File exists");
  assert_false(hri_path_exists(in_directory("model-00001-of-00003.safetensors")));
  assert_int_equal(unlink(in_directory("model-00002-of-00003.safetensors")), 0);
  write_text("model.safetensors.index.json", "{}");
  assert_int_equal(save(12, &error), HR_ERROR_IO);
  assert_says(&error, "model.safetensors.index.json: File exists");
}

/* All files with what one pass over each gives, the index last; and the same from reading them. */
static void test_digests(void **state) {
  hri_file_list written = {0}, read = {0};
  hri_weights *weights = NULL;
  hr_error error = {0};
  char bytes[24];
  (void)state;
  assert_int_equal(save_listed(12, &written, &error), HR_OK);
  assert_int_equal(written.count, 4);
  assert_string_equal(written.items[3].name, "model.safetensors.index.json");
  for (size_t k = 0; k < written.count; k++) {
    uint64_t count, value;
    assert_int_equal(hri_file_digest_read(in_directory(written.items[k].name), &count, &value, &error), HR_OK);
    assert_true(count == written.items[k].bytes && value == written.items[k].digest);
  }
  assert_int_equal(hri_weights_open(directory, &weights, &error), HR_OK);
  assert_int_equal(hri_weights_digest_begin(weights, &error), HR_OK);
  for (uint32_t k = 0; k < 3; k++) /* one is left out */
    assert_int_equal(hri_weights_read(weights, k, 0,
                                      hri_weights_get(weights, k)->end - hri_weights_get(weights, k)->begin, bytes,
                                      &error),
                     HR_OK);
  assert_int_equal(hri_weights_digest_end(weights, &read, &error), HR_OK);
  hri_weights_close(weights);
  assert_int_equal(read.count, 4);
  assert_memory_equal(read.items, written.items, 4 * sizeof *read.items);
  assert_ptr_equal(hri_file_list_find(&read, "model-00002-of-00003.safetensors"), &read.items[1]);
  assert_null(hri_file_list_find(&read, "model.safetensors"));
  hri_array_free(&written);
  hri_array_free(&read);
}

static void test_unfinished(void **state) {
  hri_weights_writer *writer = NULL;
  hr_error error = {0};
  uint64_t live = hri_mem_live_bytes();
  (void)state;
  assert_int_equal(hri_weights_writer_open(directory, tensors, 4, 12, &writer, &error), HR_OK);
  assert_true(hri_path_exists(in_directory("model-00002-of-00003.safetensors")));
  hri_weights_writer_abort(writer);
  assert_false(hri_path_exists(in_directory("model-00002-of-00003.safetensors")));
  assert_int_equal(hri_weights_writer_open(directory, tensors, 4, 12, &writer, &error), HR_OK);
  assert_int_equal(hri_weights_writer_write(writer, 4, 0, "", 1, &error), HR_ERROR_INTERNAL);
  assert_int_equal(hri_weights_writer_finish(writer, NULL, &error), HR_ERROR_INTERNAL);
  assert_says(&error, "tensor 'embed' got 0 of its 24 bytes");
  assert_int_equal(rmdir(directory), 0); /* nothing is left */
  assert_int_equal(hri_weights_writer_open(directory, tensors, 4, 12, &writer, &error), HR_ERROR_IO);
  assert_int_equal(mkdir(directory, 0700), 0);
  assert_true(hri_mem_live_bytes() == live);
}

static void test_duplicate_over_shards(void **state) {
  hri_safetensor list[2] = {{"a", HRI_FILE_U8, 1, {4}, 0, 0}, {"a", HRI_FILE_U8, 1, {4}, 0, 0}};
  hri_weights_writer *writer = NULL;
  hr_error error = {0};
  (void)state;
  assert_int_equal(hri_weights_writer_open(directory, list, 2, 4, &writer, &error), HR_ERROR_USAGE);
  assert_says(&error, "two tensors are named 'a'");
  list[1].name = "b";
  list[1].shape[0] = UINT64_MAX;
  assert_int_equal(hri_weights_writer_open(directory, list, 2, 4, &writer, &error), HR_ERROR_USAGE);
  assert_says(&error, "tensor 'b'");
}

/* ---- Index files that do not fit ---- */

#define S1 "model-00001-of-00003.safetensors"
#define S2 "model-00002-of-00003.safetensors"
#define S3 "model-00003-of-00003.safetensors"
#define GOOD_MAP "\"embed\":\"" S1 "\",\"l.0.w\":\"" S2 "\",\"l.1.w\":\"" S2 "\",\"a.norm\":\"" S3 "\""

static void test_index(void **state) {
  static const struct {
    const char *text, *message; /* no message: accepted */
  } cases[] = {
      {"{\"weight_map\":{" GOOD_MAP "}}", NULL},
      {"{\"metadata\":{\"total_size\":40,\"x\":[1]},\"y\":{},\"weight_map\":{" GOOD_MAP "}}", NULL},
      {"{\"metadata\":{\"total_size\":40.00},\"weight_map\":{" GOOD_MAP "}}", NULL},
      /* nobody goes by what a writer took for the size, nor does transformers */
      {"{\"metadata\":{\"total_size\":41},\"weight_map\":{" GOOD_MAP "}}", NULL},
      {"{\"metadata\":{\"total_size\":\"40\"},\"weight_map\":{" GOOD_MAP "}}", NULL},
      {"{\"metadata\":{\"total_size\":18446744073709551656},\"weight_map\":{" GOOD_MAP "}}", NULL},
      {"{\"metadata\":null,\"weight_map\":{" GOOD_MAP "}}", NULL},
      {"{\"metadata\":{\"total_size\":4x},\"weight_map\":{" GOOD_MAP "}}", "line 1, column "},
      {"{}", "the field 'weight_map' is missing"},
      {"[]", "expected an object"},
      {"{\"weight_map\":{" GOOD_MAP "}", "line 1, column "},
      {"{\"weight_map\":{},\"weight_map\":{}}", "'weight_map' stands there twice"},
      {"{\"metadata\":{},\"metadata\":{},\"weight_map\":{}}", "'metadata' stands there twice"},
      {"{\"weight_map\":{\"embed\":7}}", "expected a string, found '7'"},
      {"{\"weight_map\":{" GOOD_MAP ",\"embed\":\"" S2 "\"}}", "weight_map names the tensor 'embed' twice"},
      {"{\"weight_map\":{" GOOD_MAP ",\"more\":\"" S3 "\"}}",
       "places the tensor 'more' in " S3 ", which does not hold it"},
      {"{\"weight_map\":{" GOOD_MAP ",\"more\":\"absent.safetensors\"}}",
       "weight_map names the file absent.safetensors, which is missing"},
      {"{\"weight_map\":{\"embed\":\"" S1 "\",\"l.0.w\":\"" S2 "\",\"a.norm\":\"" S3 "\"}}",
       "holds the tensor 'l.1.w', which the weight_map of"},
      {"{\"weight_map\":{\"embed\":\"../" S1 "\"}}", "not the plain name of a file"},
      {"{\"weight_map\":{\"embed\":\"/" S1 "\"}}", "not the plain name of a file"},
      {"{\"weight_map\":{\"embed\":\"a\\\\b\"}}", "not the plain name of a file"},
      {"{\"weight_map\":{\"embed\":\"..\"}}", "not the plain name of a file"},
      {"{\"weight_map\":{\"embed\":\"\"}}", "not the plain name of a file"},
      {"{\"weight_map\":{\"embed\":\"broken.safetensors\"}}", "broken.safetensors has 3 bytes"},
  };
  size_t i;
  hr_error error = {0};
  (void)state;
  assert_int_equal(save(12, &error), HR_OK);
  write_text("broken.safetensors", "abc");
  for (i = 0; i < sizeof cases / sizeof *cases; i++) {
    hri_weights *weights = NULL;
    uint64_t live = hri_mem_live_bytes();
    write_text("model.safetensors.index.json", cases[i].text);
    if (!cases[i].message) {
      assert_loads(directory);
      continue;
    }
    if (hri_weights_open(directory, &weights, &error) != HR_ERROR_INPUT)
      fail_msg("accepted or failed otherwise: %s", cases[i].text);
    assert_says(&error, cases[i].message);
    assert_says(&error, directory);
    assert_true(error.hint[0]);
    assert_true(hri_mem_live_bytes() == live);
  }
}

/* A tensor in two shards: the map can only place it in one. */
static void test_tensor_in_two_shards(void **state) {
  static const char file[] = "\x2d\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}x";
  hri_weights *weights = NULL;
  hr_error error = {0};
  uint64_t length = strlen(file + 8) - 1;
  char bytes[sizeof file];
  (void)state;
  memcpy(bytes, file, sizeof file);
  memcpy(bytes, &length, 8);
  assert_int_equal(hri_file_replace(in_directory("1.safetensors"), bytes, sizeof file - 1, &error), HR_OK);
  memcpy(bytes + 8, "{\"b\"", 4);
  assert_int_equal(hri_file_replace(in_directory("2.safetensors"), bytes, sizeof file - 1, &error), HR_OK);
  write_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}");
  assert_int_equal(hri_weights_open(directory, &weights, &error), HR_OK);
  hri_weights_close(weights);
  write_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"2.safetensors\",\"b\":\"1.safetensors\"}}");
  assert_int_equal(hri_weights_open(directory, &weights, &error), HR_ERROR_INPUT);
  assert_says(&error, "places the tensor 'a' in 2.safetensors, which does not hold it");
}

static void test_no_weights(void **state) {
  hri_weights *weights = NULL;
  hr_error error = {0};
  (void)state;
  assert_int_equal(hri_weights_open(directory, &weights, &error), HR_ERROR_INPUT);
  assert_says(&error, "has neither model.safetensors nor model.safetensors.index.json");
  write_text("pytorch_model.bin", "x");
  assert_int_equal(hri_weights_open(directory, &weights, &error), HR_ERROR_INPUT);
  assert_string_equal(error.hint, "it has pytorch_model.bin: save the model as safetensors first");
  assert_int_equal(hri_weights_open(in_directory("absent"), &weights, &error), HR_ERROR_IO);
  assert_int_equal(hri_weights_open(in_directory("absent.json"), &weights, &error), HR_ERROR_IO);
}

static void test_refused_memory(void **state) {
  uint64_t n, live = hri_mem_live_bytes();
  hr_status status = HR_ERROR_MEMORY;
  (void)state;
  for (n = 1; status != HR_OK; n++) {
    hr_error error = {0};
    assert_true(n < 300);
    hri_mem_fail_after(n);
    status = save(12, &error);
    hri_mem_fail_after(0);
    assert_true(status == HR_OK || (status == HR_ERROR_MEMORY && error.message[0]));
    assert_true(hri_mem_live_bytes() == live);
    assert_true(hri_path_exists(in_directory("model.safetensors.index.json")) ==
                (status == HR_OK)); /* without it nobody takes the shards for a model */
    if (status == HR_OK) break;
    assert_int_equal(hri_dir_remove(directory, &error), HR_OK);
    assert_int_equal(mkdir(directory, 0700), 0);
  }
  assert_true(n > 20);
  status = HR_ERROR_MEMORY;
  for (n = 1; status != HR_OK; n++) {
    hri_weights *weights = NULL;
    hr_error error = {0};
    assert_true(n < 300);
    hri_mem_fail_after(n);
    status = hri_weights_open(directory, &weights, &error);
    hri_mem_fail_after(0);
    hri_weights_close(weights);
    assert_true(status == HR_OK || (status == HR_ERROR_MEMORY && error.message[0]));
    assert_true(hri_mem_live_bytes() == live);
  }
  assert_true(n > 20);
  assert_loads(directory);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, make_directory, remove_directory)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_split),
      TEST(test_single),
      TEST(test_sharded),
      TEST(test_taken_names),
      TEST(test_digests),
      TEST(test_unfinished),
      TEST(test_index),
      TEST(test_duplicate_over_shards),
      TEST(test_tensor_in_two_shards),
      TEST(test_no_weights),
      TEST(test_refused_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
