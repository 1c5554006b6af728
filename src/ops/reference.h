/* The references: every op as naive loops that can be checked by reading, in double.
 *
 * Each src/ops/<family>/ref.c is written for a type HRI_REAL. The library holds the double version,
 * hri_ref_<op>(double *...). Tests include the file a second time with HRI_REAL float: that is "a plain fp32
 * implementation", whose error against the double one is the yardstick of every tolerance. */
#ifndef HRI_OPS_REFERENCE_H
#define HRI_OPS_REFERENCE_H

#ifndef HRI_REAL
#define HRI_REAL double
#define HRI_REF(name) hri_ref_##name
#define HRI_REF_API /* extern; tests say static */
#endif

#endif
