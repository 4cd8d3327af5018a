SELECT count(*), sum(length(l_comment)), sum(length(l_shipinstruct)), max(l_shipmode),
       sum(length(ps_comment)), sum(ps_availqty)
FROM lineitem JOIN partsupp ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey
