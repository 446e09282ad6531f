"""Where the exponents of the strips' factors lie, and why nothing is lost there.

Within a strip of 32 tokens A[i,j] = sum_c q_ic k_jc 2^(G_i - G_j) is one matrix product of rows
q 2^(G_i + s) and columns k 2^(-G_j - s). A bounded gate decays a strip by at most 2^-231, so the
two factors fill nearly all of fp32's (and bf16's) exponents, -126 to 127, and s decides who gets
which end. Too little room at the small end loses digits: first the low halves of split operands,
then small elements. Rows are lifted besides, once as whole operands. With s = DOWN = 107:

    columns   2^-107 .. 2^124   |k| < 2^3; under weak gates the low half of a k above 2^-10 is kept
    k rows    2^-108 .. 2^123   after 2^KEY; |beta k| < 2^4; low halves are lost below 2^-9, and
                                only where a strip is closed completely: what is lost there has
                                decayed by 2^-231
    q rows    2^-108 .. 2^123   of scale q after 2^QUERY; |scale q| < 2^4

Measured in the interpreter, largest error of the final state. One s for all and no lifts: s = 108
costs 4e-3 under strong gates. With lifts, s = 109 costs 5e-5 under weak gates and 4e-4 where one
key is repeated under open gates, 107 costs 1.4e-5 and 9e-5; at 105 the columns of a closed strip
are infinite. Lifts of 2^11 cost 1.6e-4 of o where every gate is closed, 2^16 costs nothing.
"""

STRIP = 32
BLOCK = 16
LANES = 128
DOWN = 107
# Exact lifts of whole operands, undone where a multiplication by a power of two is due anyway.
KEY = 16
QUERY = 16
