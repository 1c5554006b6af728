/* serde_json's way from a decimal number to a double (src/de.rs, without its feature float_roundtrip). */
#include "tokenizer/decimal.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/number.h"

enum { MOST_POWER = 308, MOST_EXPONENT = 100000 };

/* 10^power, rounded to the nearest. */
static double power_of_ten(uint32_t power) {
  static const double exact[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  char text[16];
  if (power < sizeof exact / sizeof *exact) return exact[power];
  (void)snprintf(text, sizeof text, "1e%u", power);
  return hri_strtod(text, NULL);
}

static double scaled(uint64_t digits, int32_t exponent) {
  double value = (double)digits;
  for (; exponent < -MOST_POWER && value != 0; exponent += MOST_POWER) value /= 1e308;
  if (exponent < -MOST_POWER || value == 0) return value;
  return exponent < 0 ? value / power_of_ten((uint32_t)-exponent) : value * power_of_ten((uint32_t)exponent);
}

/* The number behind an "e"; what is far beyond a double is cut. */
static int32_t read_exponent(const char *at) {
  const bool negative = *at == '-';
  int32_t value = 0;
  if (*at == '-' || *at == '+') at++;
  for (; *at >= '0' && *at <= '9'; at++)
    if (value < MOST_EXPONENT) value = 10 * value + (*at - '0');
  return negative ? -value : value;
}

double hri_decimal_read(const char *number) {
  const bool negative = *number == '-';
  const char *at = number + negative;
  uint64_t digits = 0;
  int32_t exponent = 0;
  bool fraction = false, full = false; /* full: further digits of the fraction do not count, nor those of the integer */
  for (; (*at >= '0' && *at <= '9') || *at == '.'; at++) {
    const uint64_t digit = (uint64_t)(*at - '0');
    if (*at == '.') {
      fraction = true;
      full = false; /* tried again, as there */
      continue;
    }
    full = full || digits > UINT64_MAX / 10 || (digits == UINT64_MAX / 10 && digit > UINT64_MAX % 10);
    if (!full) digits = 10 * digits + digit;
    if (fraction && !full && exponent > -MOST_EXPONENT) exponent--;
    if (!fraction && full && exponent < MOST_EXPONENT) exponent++;
  }
  if (*at == 'e' || *at == 'E') exponent += read_exponent(at + 1);
  if (exponent > MOST_POWER) exponent = MOST_POWER; /* of zero: others are not finite */
  return negative ? -scaled(digits, exponent) : scaled(digits, exponent);
}
