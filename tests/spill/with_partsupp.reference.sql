-- Every row of lineitem has one of partsupp.
SELECT sum(n), sum(c), sum(i), max(m), sum(n * length(ps_comment)), sum(n * ps_availqty)
FROM (SELECT l_partkey, l_suppkey, count(*) AS n, sum(length(l_comment)) AS c,
             sum(length(l_shipinstruct)) AS i, max(l_shipmode) AS m
      FROM lineitem GROUP BY l_partkey, l_suppkey)
JOIN partsupp ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey
