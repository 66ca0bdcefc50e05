set terminal svg size 1080,540 dynamic noenhanced background rgb 'white' font 'sans,13'
set output 'bytes.svg'
set title 'What all ranks send in a step at 100mbit, by traffic class (measured)'
set xlabel ''
set ylabel 'MB a step'
set grid
set key outside right top Left reverse samplen 3
set style data histograms
set style histogram rowstacked
set style fill solid 0.9
set boxwidth 0.75
set xtics ('fp32' 0, 'fp16' 1, 'ac-sgd' 2) rotate by -35
set yrange [0:*]
plot 'bytes.dat' index 0 using 2 linecolor rgb '#D55E00' title 'control', \
  'bytes.dat' index 1 using 2 linecolor rgb '#0072B2' title 'pp.activation', \
  'bytes.dat' index 2 using 2 linecolor rgb '#009E73' title 'pp.gradient', \
  'bytes.dat' index 3 using 2 linecolor rgb '#CC79A7' title 'embedding.tied', \
  'bytes.dat' index 4 using 2 linecolor rgb '#E69F00' title 'preflight'
set terminal pngcairo size 1080,540 noenhanced background rgb 'white' font 'sans,11'
set output 'bytes.png'
replot
