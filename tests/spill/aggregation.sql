SELECT count(*), sum(length(a)), sum(length(b)), max(a), max(b)
FROM (SELECT l_orderkey, l_partkey, min(l_shipinstruct) AS a, min(l_comment) AS b
      FROM lineitem GROUP BY l_orderkey, l_partkey)
