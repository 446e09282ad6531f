"""Where the exponents of the strips' factors lie, and why nothing is lost there.

Within a strip of 32 tokens A[i,j] = sum_c q_ic k_jc 2^(G_i - G_j) is one matrix product of rows
q 2^(G_i + s) and columns k 2^(-G_j - s). A bounded gate decays a strip by at most 2^-231, so the
two factors fill nearly all of fp32's (and bf16's) exponents, -126 to 127, and s decides who gets
which end. Too little room at the small end loses digits: first the low halves of split operands,
then small elements. With s = DOWN = 109:

    columns   2^-109 .. 2^122   |k| < 2^5; under weak gates a k of 2^-4 keeps its low half (2^-122)
    k rows    2^-113 .. 2^118   after 2^KEY; lost below |beta k| = 2^-13, and only where a strip
                                is closed completely, so that what is lost has decayed by 2^-231
    q rows    2^-116 .. 2^115   after scale 2^QUERY at K = 128

Measured in the interpreter with one s for all and no lifts, error of the final state: s = 108 costs
4e-3 under strong gates, s = 115 costs 2e-3 under weak ones, and between them one of the two stays
above 1e-4. With the lifts 109 keeps both below 3e-4.
"""

STRIP = 32
BLOCK = 16
LANES = 128
DOWN = 109
# Exact lifts of whole operands, undone where a multiplication by a power of two is due anyway.
KEY = 9
QUERY = 9
# What a whole strip may decay, in powers of two, and the largest exponent of a column.
STRIP_REACH = 231
EXPONENT_END = 127
