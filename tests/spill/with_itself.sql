SELECT count(*), sum(length(a.l_comment)), max(a.l_shipinstruct), max(a.l_shipmode),
       sum(length(b.l_comment)), sum(length(b.l_shipinstruct)), max(b.l_shipmode)
FROM lineitem a JOIN lineitem b ON a.l_orderkey = b.l_orderkey AND a.l_linenumber = b.l_linenumber
