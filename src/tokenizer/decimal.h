/* Numbers of tokenizer.json as the reference reads them.
 *
 * `tokenizers` parses its file with serde_json, which does not round to the nearest double: it divides the digits, as far
 * as they fit 64 bits, by a power of ten. About a quarter of scores differ in their last bit. Two paths of the same tokens
 * in another order are as good as each other but for the rounding of their sums, so that ids hang on that bit. */
#ifndef HRI_TOKENIZER_DECIMAL_H
#define HRI_TOKENIZER_DECIMAL_H

/* The value of a JSON number with a point or an exponent, which is valid and finite. */
double hri_decimal_read(const char *number);

#endif
